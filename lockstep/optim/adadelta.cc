#include "lockstep/optim/adadelta.h"

#include <cmath>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {

Adadelta::Adadelta(const ParameterGroups& parameters, AdadeltaOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay, {"square_avg", "acc_delta"},
                fused_rule(AdadeltaRule{.rho = options.rho, .eps = options.eps})),
      options_(options) {
  check(options.rho >= 0 && options.rho <= 1, "optimizer: rho {}, expected from 0 to 1", options.rho);
  check(std::isfinite(options.eps) && options.eps > 0, "optimizer: eps {}, expected above 0", options.eps);
}

Optimizer::Rule Adadelta::rule() const {
  Rule rule{"adadelta", {{"weight_decay", options_.weight_decay}}};
  const AdadeltaOptions plain;
  rule.add_unless(plain.rho, "rho", options_.rho);
  rule.add_unless(plain.eps, "eps", options_.eps);
  return rule;
}

}  // namespace lockstep
