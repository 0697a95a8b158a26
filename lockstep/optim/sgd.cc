#include "lockstep/optim/sgd.h"

#include <span>
#include <string>
#include <vector>

#include "lockstep/ops/optimizer.h"

namespace lockstep {

Sgd::Sgd(const ParameterGroups& parameters, SgdOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay,
                options.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}),
      options_(options) {
  check_at_least_zero("momentum", options.momentum);
  check(!options.nesterov || options.momentum > 0, "optimizer: nesterov with momentum 0, expected a momentum above 0");
}

Optimizer::Rule Sgd::rule() const {
  Rule rule{"sgd", {{"momentum", options_.momentum}, {"weight_decay", options_.weight_decay}}};
  if (options_.nesterov) rule.options.emplace_back("nesterov", 1);
  return rule;
}

void Sgd::update(std::span<const Update<Array>> updates, const Array& scale, const Array& rates) {
  ops::update_(updates, group_rules(options_), scale, rates);
}

}  // namespace lockstep
