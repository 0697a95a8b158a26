// RMSprop, which divides gradients by a moving average of their size.
//
//   RMSprop rmsprop(net.parameters(), {.lr = 1e-3, .momentum = 0.9});
//   loss.backward();
//   rmsprop.step();
#pragma once

#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

struct RMSpropOptions {
  Rate lr = 0.01;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  // Divides by an estimate of the gradient's deviation, instead of its size.
  bool centered = false;
};

// RMSprop (Tieleman and Hinton 2012), as in PyTorch. With a mean square v, a mean a, and a buffer m that start at 0:
//   g += weight_decay w;  v = alpha v + (1 - alpha) g^2;  if centered, a = alpha a + (1 - alpha) g;
//   m = momentum m + g / (sqrt(v - a^2) + eps);  w -= lr m
// With `centered`, a gradient that hardly changes makes v - a^2 zero, or negative by rounding; the step is then
// g / eps, or NaN, as in PyTorch.
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const ParameterGroups& parameters, const RMSpropOptions& options = {});
  template <std::convertible_to<double> Lr>
  RMSprop(const ParameterGroups& parameters, Lr lr)
      : RMSprop(parameters, RMSpropOptions{.lr = static_cast<double>(lr)}) {}
  Rule rule() const override;
};

}  // namespace lockstep
