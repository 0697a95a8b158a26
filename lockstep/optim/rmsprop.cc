#include "lockstep/optim/rmsprop.h"

#include <variant>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

struct RMSpropParts {
  using Options = RMSpropOptions;
  static void each(auto& o, const auto& f) {
    f("alpha", o.alpha), f("eps", o.eps), f("momentum", o.momentum), f("centered", o.centered);
  }
  static void check(const RMSpropOptions& o) {
    lockstep::check(o.alpha >= 0 && o.alpha <= 1, "optimizer: alpha {}, expected from 0 to 1", o.alpha);
    check_option("eps", o.eps);
    check_option("momentum", o.momentum);
  }
  static std::vector<FusedRule::State> states(const RMSpropOptions& o) {
    return {{"square_avg"}, {"grad_avg", o.centered}, {"momentum_buffer", o.momentum != 0}};
  }
  static std::variant<RMSpropRule> kernel(const RMSpropOptions& o) {
    return RMSpropRule{.alpha = o.alpha, .eps = o.eps, .momentum = o.momentum, .centered = o.centered};
  }
};

}  // namespace

RMSprop::RMSprop(const ParameterGroups& parameters, const RMSpropOptions& options)
    : Optimizer(parameters, options.lr, options.weight_decay, lockstep::fused_rule<RMSpropParts>(options)) {}

Optimizer::Rule RMSprop::rule() const {
  const RMSpropOptions& o = options_of<RMSpropParts>(fused_rule());
  Rule rule{"rmsprop", {{"momentum", o.momentum}, {"weight_decay", weight_decay()}}};
  const RMSpropOptions plain;
  rule.add_unless(plain.alpha, "alpha", o.alpha);
  rule.add_unless(plain.eps, "eps", o.eps);
  rule.add_unless(0, "centered", o.centered);
  return rule;
}

}  // namespace lockstep
