#include "lockstep/optim/adagrad.h"

#include <variant>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

struct AdagradParts {
  using Options = AdagradOptions;
  static void each(auto& o, const auto& f) { f("lr_decay", o.lr_decay), f("eps", o.eps); }
  static void check(const AdagradOptions& o) {
    check_option("lr_decay", o.lr_decay);
    check_option("eps", o.eps);
  }
  static std::vector<FusedRule::State> states(const AdagradOptions&) { return {{"sum"}}; }
  static std::variant<AdagradRule> kernel(const AdagradOptions& o) {
    return AdagradRule{.lr_decay = o.lr_decay, .eps = o.eps};
  }
};

}  // namespace

Adagrad::Adagrad(const ParameterGroups& parameters, const AdagradOptions& options)
    : Optimizer(parameters, options.lr, options.weight_decay, lockstep::fused_rule<AdagradParts>(options)) {}

Optimizer::Rule Adagrad::rule() const {
  const AdagradOptions& o = options_of<AdagradParts>(fused_rule());
  Rule rule{"adagrad", {{"weight_decay", weight_decay()}}};
  const AdagradOptions plain;
  rule.add_unless(plain.lr_decay, "lr_decay", o.lr_decay);
  rule.add_unless(plain.eps, "eps", o.eps);
  return rule;
}

}  // namespace lockstep
