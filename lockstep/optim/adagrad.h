// Adagrad, which divides gradients by the root of the sum of their squares so far.
//
//   Adagrad adagrad(net.parameters(), {.lr = 0.05});
//   loss.backward();
//   adagrad.step();
#pragma once

#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

struct AdagradOptions {
  Rate lr = 0.01;
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
};

// torch.optim.Adagrad (Duchi et al. 2011). With a sum s that starts at 0, in the parameter's step t, counted from 1:
//   g += weight_decay w;  s += g^2;  w -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const ParameterGroups& parameters, const AdagradOptions& options = {});
  template <std::convertible_to<double> Lr>
  Adagrad(const ParameterGroups& parameters, Lr lr)
      : Adagrad(parameters, AdagradOptions{.lr = static_cast<double>(lr)}) {}
  Rule rule() const override;
};

}  // namespace lockstep
