#include "lockstep/optim/adam.h"

#include <span>

#include "lockstep/ops/optimizer.h"

namespace lockstep {

Adam::Adam(const ParameterGroups& parameters, AdamOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay, {"exp_avg", "exp_avg_sq"}, true), options_(options) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
        "optimizer: betas {} and {}, expected at least 0 and below 1", options.beta1, options.beta2);
  check_at_least_zero("eps", options.eps);
}

Optimizer::Rule Adam::rule() const {
  Rule rule{options_.decoupled_weight_decay ? "adamw" : "adam", {{"weight_decay", options_.weight_decay}}};
  constexpr AdamOptions plain;
  if (options_.beta1 != plain.beta1) rule.options.emplace_back("beta1", options_.beta1);
  if (options_.beta2 != plain.beta2) rule.options.emplace_back("beta2", options_.beta2);
  if (options_.eps != plain.eps) rule.options.emplace_back("eps", options_.eps);
  return rule;
}

void Adam::update(std::span<const Update<Array>> updates, const Array& scale, const Array& rates) {
  ops::update_(updates, group_rules(options_), scale, rates);
}

}  // namespace lockstep
