// PyTorch's torch.nn.init: initial values of one parameter, or of a model.
//
//   net.apply([](Module& m) {
//     if (auto* linear = dynamic_cast<Linear*>(&m)) init::xavier_uniform_(linear->weight);
//   });
//   init::normal_(net["fc.weight"], 0, 0.02);
//   init::xavier_uniform_(net);  // net.initialize(XavierUniform{}), also of a model that has values already
//
// The functions for a parameter call Parameter::reset() with the initializer of the same name (nn/initializers.h). The
// values follow from the seed, the parameter's name, and the initializer, as with initialize(), on all devices. The
// padding row of an Embedding stays 0. Trainer's recipe names the call. The functions for a model call
// Module::initialize(), so biases begin at 0 and weights of norms at 1; the recipe is that of initialize().
#pragma once

#include "lockstep/nn/initializers.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/parameter.h"

namespace LOCKSTEP_API lockstep {
namespace init {

// Uniform in [a, b).
void uniform_(const Parameter& p, double a = 0, double b = 1);
void normal_(const Parameter& p, double mean = 0, double std = 1);
void trunc_normal_(const Parameter& p, const TruncatedNormalOptions& options = {});
void constant_(const Parameter& p, double value);
void zeros_(const Parameter& p);
void ones_(const Parameter& p);
void xavier_uniform_(const Parameter& p, double gain = 1);
void xavier_normal_(const Parameter& p, double gain = 1);
// PyTorch's `nonlinearity` is the slope here: KaimingOptions::a is 0 for ReLU.
void kaiming_uniform_(const Parameter& p, const KaimingOptions& options = {});
void kaiming_normal_(const Parameter& p, const KaimingOptions& options = {});
void orthogonal_(const Parameter& p, double gain = 1);

void uniform_(Module& net, double a = 0, double b = 1);
void normal_(Module& net, double mean = 0, double std = 1);
void trunc_normal_(Module& net, const TruncatedNormalOptions& options = {});
void xavier_uniform_(Module& net, double gain = 1);
void xavier_normal_(Module& net, double gain = 1);
void kaiming_uniform_(Module& net, const KaimingOptions& options = {});
void kaiming_normal_(Module& net, const KaimingOptions& options = {});
void orthogonal_(Module& net, double gain = 1);

}  // namespace init
}  // namespace lockstep
