#include "lockstep/optim/sgd.h"

#include <memory>
#include <string>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

std::shared_ptr<const FusedRule> sgd_rule(const SgdOptions& o) {
  if (o.dampening != 0 && o.momentum != 0) {
    return fused_rule(DampenedSgdRule{.momentum = o.momentum, .dampening = o.dampening});
  }
  return fused_rule(SgdRule{.momentum = o.momentum, .nesterov = o.nesterov});
}

}  // namespace

Sgd::Sgd(const ParameterGroups& parameters, SgdOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay,
                options.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{},
                sgd_rule(options), options.dampening != 0 && options.momentum != 0),
      options_(options) {
  check_at_least_zero("momentum", options.momentum);
  check(options.dampening >= 0 && options.dampening <= 1, "optimizer: dampening {}, expected from 0 to 1",
        options.dampening);
  check(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
        "optimizer: nesterov with momentum {} and dampening {}, expected a momentum above 0 and no dampening",
        options.momentum, options.dampening);
}

Optimizer::Rule Sgd::rule() const {
  Rule rule{"sgd", {{"momentum", options_.momentum}, {"weight_decay", options_.weight_decay}}};
  rule.add_unless(0, "nesterov", options_.nesterov);
  rule.add_unless(0, "dampening", options_.dampening);
  return rule;
}

}  // namespace lockstep
