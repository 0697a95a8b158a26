#include "lockstep/optim/sgd.h"

#include <variant>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

struct SgdParts {
  using Options = SgdOptions;
  static void each(auto& o, const auto& f) {
    f("momentum", o.momentum), f("nesterov", o.nesterov), f("dampening", o.dampening);
  }
  static void check(const SgdOptions& o) {
    check_option("momentum", o.momentum);
    lockstep::check(o.dampening >= 0 && o.dampening <= 1, "optimizer: dampening {}, expected from 0 to 1", o.dampening);
    lockstep::check(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
                    "optimizer: nesterov with momentum {} and dampening {}, expected a momentum above 0 and no "
                    "dampening",
                    o.momentum, o.dampening);
  }
  static std::vector<FusedRule::State> states(const SgdOptions& o) { return {{"momentum", o.momentum != 0}}; }
  static std::variant<SgdRule, DampenedSgdRule> kernel(const SgdOptions& o) {
    if (o.dampening != 0 && o.momentum != 0) return DampenedSgdRule{.momentum = o.momentum, .dampening = o.dampening};
    return SgdRule{.momentum = o.momentum, .nesterov = o.nesterov};
  }
};

}  // namespace

Sgd::Sgd(const ParameterGroups& parameters, const SgdOptions& options)
    : Optimizer(parameters, options.lr, options.weight_decay, lockstep::fused_rule<SgdParts>(options)) {}

Optimizer::Rule Sgd::rule() const {
  const SgdOptions& o = options_of<SgdParts>(fused_rule());
  Rule rule{"sgd", {{"momentum", o.momentum}, {"weight_decay", weight_decay()}}};
  rule.add_unless(0, "nesterov", o.nesterov);
  rule.add_unless(0, "dampening", o.dampening);
  return rule;
}

}  // namespace lockstep
