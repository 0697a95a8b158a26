#include "lockstep/optim/adam.h"

#include <string>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

std::vector<std::string> adam_states(const AdamOptions& o) {
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (o.amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

AdamRule adam_rule(const AdamOptions& o) {
  return {.beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .decoupled_weight_decay = o.decoupled_weight_decay,
          .amsgrad = o.amsgrad};
}

}  // namespace

Adam::Adam(const ParameterGroups& parameters, AdamOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay, adam_states(options), fused_rule(adam_rule(options)),
                true),
      options_(options) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
        "optimizer: betas {} and {}, expected at least 0 and below 1", options.beta1, options.beta2);
  check_at_least_zero("eps", options.eps);
}

Optimizer::Rule Adam::rule() const {
  Rule rule{options_.decoupled_weight_decay ? "adamw" : "adam", {{"weight_decay", options_.weight_decay}}};
  const AdamOptions plain;
  if (options_.beta1 != plain.beta1) rule.options.emplace_back("beta1", options_.beta1);
  if (options_.beta2 != plain.beta2) rule.options.emplace_back("beta2", options_.beta2);
  if (options_.eps != plain.eps) rule.options.emplace_back("eps", options_.eps);
  if (options_.amsgrad) rule.options.emplace_back("amsgrad", 1);
  return rule;
}

}  // namespace lockstep
