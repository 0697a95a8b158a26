#include "lockstep/optim/adam.h"

#include <variant>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

struct AdamParts {
  using Options = AdamOptions;
  // Without decoupled_weight_decay, which decides the rule's name and so cannot change.
  static void each(auto& o, const auto& f) {
    f("beta1", o.beta1), f("beta2", o.beta2), f("eps", o.eps), f("amsgrad", o.amsgrad);
  }
  static void check(const AdamOptions& o) {
    lockstep::check(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
                    "optimizer: betas {} and {}, expected at least 0 and below 1", o.beta1, o.beta2);
    check_option("eps", o.eps);
  }
  static std::vector<FusedRule::State> states(const AdamOptions& o) {
    return {{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq", o.amsgrad}};
  }
  static std::variant<AdamRule> kernel(const AdamOptions& o) {
    return AdamRule{.beta1 = o.beta1,
                    .beta2 = o.beta2,
                    .eps = o.eps,
                    .decoupled_weight_decay = o.decoupled_weight_decay,
                    .amsgrad = o.amsgrad};
  }
};

}  // namespace

Adam::Adam(const ParameterGroups& parameters, const AdamOptions& options)
    : Optimizer(parameters, options.lr, options.weight_decay, lockstep::fused_rule<AdamParts>(options)) {}

Optimizer::Rule Adam::rule() const {
  const AdamOptions& o = options_of<AdamParts>(fused_rule());
  Rule rule{o.decoupled_weight_decay ? "adamw" : "adam", {{"weight_decay", weight_decay()}}};
  const AdamOptions plain;
  rule.add_unless(plain.beta1, "beta1", o.beta1);
  rule.add_unless(plain.beta2, "beta2", o.beta2);
  rule.add_unless(plain.eps, "eps", o.eps);
  rule.add_unless(0, "amsgrad", o.amsgrad);
  return rule;
}

}  // namespace lockstep
