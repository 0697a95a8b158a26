// Adadelta, which needs no learning rate: the sizes of earlier updates set the size of the next update.
//
//   Adadelta adadelta(net.parameters(), {});
//   loss.backward();
//   adadelta.step();
#pragma once

#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

struct AdadeltaOptions {
  Rate lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
};

// torch.optim.Adadelta (Zeiler 2012). With mean squares v of gradients and u of updates, which start at 0:
//   g += weight_decay w;  v = rho v + (1 - rho) g^2;  d = sqrt(u + eps) / sqrt(v + eps) g
//   u = rho u + (1 - rho) d^2;  w -= lr d
class Adadelta : public Optimizer {
 public:
  explicit Adadelta(const ParameterGroups& parameters, const AdadeltaOptions& options = {});
  template <std::convertible_to<double> Lr>
  Adadelta(const ParameterGroups& parameters, Lr lr)
      : Adadelta(parameters, AdadeltaOptions{.lr = static_cast<double>(lr)}) {}
  Rule rule() const override;
};

}  // namespace lockstep
