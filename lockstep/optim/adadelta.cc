#include "lockstep/optim/adadelta.h"

#include <cmath>
#include <variant>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

struct AdadeltaParts {
  using Options = AdadeltaOptions;
  static void each(auto& o, const auto& f) { f("rho", o.rho), f("eps", o.eps); }
  static void check(const AdadeltaOptions& o) {
    lockstep::check(o.rho >= 0 && o.rho <= 1, "optimizer: rho {}, expected from 0 to 1", o.rho);
    lockstep::check(std::isfinite(o.eps) && o.eps > 0, "optimizer: eps {}, expected above 0", o.eps);
  }
  static std::vector<FusedRule::State> states(const AdadeltaOptions&) { return {{"square_avg"}, {"acc_delta"}}; }
  static std::variant<AdadeltaRule> kernel(const AdadeltaOptions& o) {
    return AdadeltaRule{.rho = o.rho, .eps = o.eps};
  }
};

}  // namespace

Adadelta::Adadelta(const ParameterGroups& parameters, const AdadeltaOptions& options)
    : Optimizer(parameters, options.lr, options.weight_decay, lockstep::fused_rule<AdadeltaParts>(options)) {}

Optimizer::Rule Adadelta::rule() const {
  const AdadeltaOptions& o = options_of<AdadeltaParts>(fused_rule());
  Rule rule{"adadelta", {{"weight_decay", weight_decay()}}};
  const AdadeltaOptions plain;
  rule.add_unless(plain.rho, "rho", o.rho);
  rule.add_unless(plain.eps, "eps", o.eps);
  return rule;
}

}  // namespace lockstep
