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
  rule.add_unless(plain.beta1, "beta1", options_.beta1);
  rule.add_unless(plain.beta2, "beta2", options_.beta2);
  rule.add_unless(plain.eps, "eps", options_.eps);
  rule.add_unless(0, "amsgrad", options_.amsgrad);
  return rule;
}

}  // namespace lockstep
