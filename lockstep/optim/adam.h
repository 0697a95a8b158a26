// Adam, and AdamW, whose weight decay is decoupled from the gradient.
//
//   AdamW adamw(net.parameters(), {.lr = 3e-4, .weight_decay = 0.1});
//   loss.backward();
//   adamw.step();
#pragma once

#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

struct AdamOptions {
  Rate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  // AdamW: decays the weights directly instead of through the gradient.
  bool decoupled_weight_decay = false;
  // Divides by the largest v so far (Reddi et al. 2018).
  bool amsgrad = false;
};

// Adam (Kingma and Ba 2015). With moments m and v that start at 0, in the parameter's step t, counted from 1:
//   g += weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// As in PyTorch, t counts the steps in which the parameter had a gradient. A step that unscale() skips counts, too.
class Adam : public Optimizer {
 public:
  explicit Adam(const ParameterGroups& parameters, const AdamOptions& options = {});
  template <std::convertible_to<double> Lr>
  Adam(const ParameterGroups& parameters, Lr lr) : Adam(parameters, AdamOptions{.lr = static_cast<double>(lr)}) {}
  Rule rule() const override;
};

// The defaults are PyTorch's: unlike Adam, AdamW decays weights by default.
struct AdamWOptions {
  Rate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool amsgrad = false;
};

// Adam with decoupled weight decay (Loshchilov and Hutter 2019): w -= lr weight_decay w, instead of adding the decay to
// g.
class AdamW : public Adam {
 public:
  explicit AdamW(const ParameterGroups& parameters, const AdamWOptions& o = {})
      : Adam(parameters, {.lr = o.lr,
                          .beta1 = o.beta1,
                          .beta2 = o.beta2,
                          .eps = o.eps,
                          .weight_decay = o.weight_decay,
                          .decoupled_weight_decay = true,
                          .amsgrad = o.amsgrad}) {}
  template <std::convertible_to<double> Lr>
  AdamW(const ParameterGroups& parameters, Lr lr) : AdamW(parameters, AdamWOptions{.lr = static_cast<double>(lr)}) {}
};

}  // namespace lockstep
