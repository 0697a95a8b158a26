// Adam, and AdamW, whose weight decay is decoupled from the gradient.
//
//   AdamW adamw(net.parameters(), {.lr = 3e-4, .weight_decay = 0.1});
//   loss.backward();
//   adamw.step();
#pragma once

#include <span>

#include "lockstep/backend/update_rules.h"
#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

// Adam (Kingma and Ba 2015). With moments m and v that start at 0, in the parameter's step t, counted from 1:
//   g += weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// As in PyTorch, t counts the steps in which the parameter had a gradient. A step that unscale() skips counts, too.
class Adam : public Optimizer {
 public:
  Adam(const ParameterGroups& parameters, AdamOptions options);
  Rule rule() const override;

 protected:
  void update(std::span<const Update<Array>> updates, const Array& scale, const Array& rates) override;

 private:
  AdamOptions options_;
};

// Adam with decoupled weight decay (Loshchilov and Hutter 2019): w -= lr weight_decay w, instead of adding the decay to
// g. The default decay is 0; PyTorch's is 0.01.
class AdamW : public Adam {
 public:
  AdamW(const ParameterGroups& parameters, AdamOptions options) : Adam(parameters, decoupled(options)) {}

 private:
  static AdamOptions decoupled(AdamOptions options) {
    options.decoupled_weight_decay = true;
    return options;
  }
};

}  // namespace lockstep
