// Internal: a rule of the library's own optimizers, whose kernel updates all parameters of a lane in one task.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/ops/optimizer.h"

namespace lockstep {

class FusedRule {
 public:
  virtual ~FusedRule() = default;
  // The learning rate and the weight decay of a group.
  struct GroupOptions {
    double lr, weight_decay;
  };
  // In a recorded step, `rates` holds the learning rate of each group, renewed at each repetition; otherwise it is
  // undefined.
  virtual void update(std::span<const Update<Array>> updates, std::span<const GroupOptions> groups, const Array& scale,
                      const Array& rates) const = 0;
};

// `rule`: one of backend/update_rules.h.
template <typename Rule>
std::shared_ptr<const FusedRule> fused_rule(const Rule& rule) {
  struct Fused final : FusedRule {
    explicit Fused(const Rule& rule) : rule(rule) {}
    void update(std::span<const Update<Array>> updates, std::span<const GroupOptions> groups, const Array& scale,
                const Array& rates) const override {
      std::vector<Rule> rules;
      for (const GroupOptions& group : groups) {
        rules.push_back(rule);
        rules.back().lr = group.lr;
        rules.back().weight_decay = group.weight_decay;
      }
      ops::update_(updates, std::move(rules), scale, rates);
    }
    const Rule rule;
  };
  return std::make_shared<Fused>(rule);
}

}  // namespace lockstep
