// Stochastic gradient descent, with momentum.
//
//   Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});  // or SgdOptions{...}: compilers then name a wrong option
//   loss.backward();
//   sgd.step();
#pragma once

#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

struct SgdOptions {
  Rate lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  // Share of a gradient that does not enter the momentum buffer; a first gradient enters whole. Not with nesterov.
  double dampening = 0;
};

// torch.optim.SGD. With the gradient g of a weight w, and a momentum buffer m that starts at 0:
//   g += weight_decay w;  m = momentum m + (1 - dampening) g;  w -= lr m
// A parameter's first gradient is not dampened. With `nesterov`, w -= lr (g + momentum m) (Sutskever et al. 2013).
class Sgd : public Optimizer {
 public:
  Sgd(const ParameterGroups& parameters, const SgdOptions& options);
  template <std::convertible_to<double> Lr>
  Sgd(const ParameterGroups& parameters, Lr lr) : Sgd(parameters, SgdOptions{.lr = static_cast<double>(lr)}) {}
  template <std::convertible_to<ParameterGroups> Parameters>
  explicit Sgd(const Parameters&) : Sgd(ParameterGroups(), SgdOptions{}) {
    static_assert(!sizeof(Parameters), "expected a learning rate: Sgd(net.parameters(), {.lr = 0.1})");
  }
  Rule rule() const override;
};

using SGD = Sgd;
using SGDOptions = SgdOptions;

}  // namespace lockstep
