#include "lockstep/optim/rmsprop.h"

#include <string>
#include <vector>

#include "lockstep/optim/fused_rule.h"

namespace lockstep {
namespace {

std::vector<std::string> rmsprop_states(const RMSpropOptions& options) {
  std::vector<std::string> names{"square_avg"};
  if (options.centered) names.emplace_back("grad_avg");
  if (options.momentum != 0) names.emplace_back("momentum_buffer");
  return names;
}

RMSpropRule rmsprop_rule(const RMSpropOptions& o) {
  return {.alpha = o.alpha, .eps = o.eps, .momentum = o.momentum, .centered = o.centered};
}

}  // namespace

RMSprop::RMSprop(const ParameterGroups& parameters, RMSpropOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay, rmsprop_states(options),
                fused_rule(rmsprop_rule(options))),
      options_(options) {
  check(options.alpha >= 0 && options.alpha <= 1, "optimizer: alpha {}, expected from 0 to 1", options.alpha);
  check_at_least_zero("eps", options.eps);
  check_at_least_zero("momentum", options.momentum);
}

Optimizer::Rule RMSprop::rule() const {
  Rule rule{"rmsprop", {{"momentum", options_.momentum}, {"weight_decay", options_.weight_decay}}};
  const RMSpropOptions plain;
  rule.add_unless(plain.alpha, "alpha", options_.alpha);
  rule.add_unless(plain.eps, "eps", options_.eps);
  rule.add_unless(0, "centered", options_.centered);
  return rule;
}

}  // namespace lockstep
