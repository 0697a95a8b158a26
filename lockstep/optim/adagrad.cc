#include "lockstep/optim/adagrad.h"

#include "lockstep/optim/fused_rule.h"

namespace lockstep {

Adagrad::Adagrad(const ParameterGroups& parameters, AdagradOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay, {"sum"},
                fused_rule(AdagradRule{.lr_decay = options.lr_decay, .eps = options.eps}), true),
      options_(options) {
  check_at_least_zero("lr_decay", options.lr_decay);
  check_at_least_zero("eps", options.eps);
}

Optimizer::Rule Adagrad::rule() const {
  Rule rule{"adagrad", {{"weight_decay", options_.weight_decay}}};
  const AdagradOptions plain;
  rule.add_unless(plain.lr_decay, "lr_decay", options_.lr_decay);
  rule.add_unless(plain.eps, "eps", options_.eps);
  return rule;
}

}  // namespace lockstep
