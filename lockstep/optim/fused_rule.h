// Internal: the update rule of one of the library's own optimizers, and its options. The rule's kernel updates all
// parameters of a lane in one task.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ops/optimizer.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

class FusedRule {
 public:
  virtual ~FusedRule() = default;

  // Returns the options that a group may override, without lr and weight_decay.
  virtual OptimizerOptions options() const = 0;
  // Returns the rule with other values of some options. Throws for unknown names and for values that are out of range.
  virtual std::shared_ptr<const FusedRule> with(const OptimizerOptions& changed) const = 0;

  // The states that the rule may have, in the kernel's order, and whether it uses them with its present options.
  struct State {
    std::string name;
    bool used = true;
  };
  virtual std::vector<State> states() const = 0;
  // Return whether the rule needs each parameter's own step count, with its present options or with any options.
  virtual bool counts_steps() const = 0;
  virtual bool may_count_steps() const = 0;

  struct Group {
    double lr, weight_decay;
    std::shared_ptr<const FusedRule> rule;  // of the same class in all groups
  };
  // In a recorded step, `rates` holds the learning rate of each group, renewed at each repetition; otherwise it is
  // undefined.
  virtual void update(std::span<const Update<Array>> updates, std::span<const Group> groups, const Array& scale,
                      const Array& rates) const = 0;
};

// R describes a rule:
//   using Options = ...;                            of the optimizer's constructor
//   static void each(auto& options, const auto& f); calls f(name, member) for each option but lr and weight_decay
//   static void check(const Options&);              throws for values that are out of range
//   static std::vector<FusedRule::State> states(const Options&);
//   static std::variant<...> kernel(const Options&); one of its rules in backend/update_rules.h
template <typename R>
class FusedRuleOf final : public FusedRule {
 public:
  using Options = typename R::Options;
  using Kernel = decltype(R::kernel(std::declval<Options>()));

  explicit FusedRuleOf(const Options& options) : all(options), kernel_(R::kernel(options)) { R::check(options); }

  OptimizerOptions options() const override {
    OptimizerOptions named;
    R::each(all, [&](std::string_view name, auto value) { named.emplace_back(name, value); });
    return named;
  }
  std::shared_ptr<const FusedRule> with(const OptimizerOptions& changed) const override {
    Options options = all;
    for (const auto& [name, value] : changed) {
      bool known = false;
      R::each(options, [&, &name = name, &value = value](std::string_view its_name, auto& member) {
        if (its_name != name) return;
        known = true;
        using Member = std::remove_reference_t<decltype(member)>;
        check((!std::is_same_v<Member, bool>) || value == 0 || value == 1, "optimizer: {} {}, expected 0 or 1", name,
              value);
        member = static_cast<Member>(value);
      });
      check(known, "optimizer: it has no option {}", name);
    }
    return std::make_shared<FusedRuleOf>(options);
  }
  std::vector<State> states() const override { return R::states(all); }
  bool counts_steps() const override {
    return std::visit([](const auto& rule) { return rule.kCountsSteps; }, kernel_);
  }
  bool may_count_steps() const override {
    return []<typename... Rules>(const std::variant<Rules...>*) { return (Rules::kCountsSteps || ...); }(&kernel_);
  }
  void update(std::span<const Update<Array>> updates, std::span<const Group> groups, const Array& scale,
              const Array& rates) const override {
    [&]<typename... Rules>(const std::variant<Rules...>*) {
      (update_by<Rules>(updates, groups, scale, rates), ...);
    }(&kernel_);
  }

  const Options all;  // lr and weight_decay are not used

 private:
  // Updates the parameters of the groups that have this kernel, in one task.
  template <typename Rule>
  static void update_by(std::span<const Update<Array>> updates, std::span<const Group> groups, const Array& scale,
                        const Array& rates) {
    std::vector<Rule> rules;
    std::vector<bool> has_kernel;
    for (const Group& group : groups) {
      const Rule* const rule = std::get_if<Rule>(&static_cast<const FusedRuleOf&>(*group.rule).kernel_);
      has_kernel.push_back(rule != nullptr);
      rules.push_back(rule != nullptr ? *rule : Rule());
      rules.back().lr = group.lr;
      rules.back().weight_decay = group.weight_decay;
    }
    std::vector<Update<Array>> of_kernel;
    for (const Update<Array>& update : updates) {
      if (has_kernel[update.group]) of_kernel.push_back(update);
    }
    ops::update_(of_kernel, std::move(rules), scale, rates);
  }

  const Kernel kernel_;
};

template <typename R>
std::shared_ptr<const FusedRule> fused_rule(const typename R::Options& options) {
  return std::make_shared<FusedRuleOf<R>>(options);
}

// Returns the options of a rule that fused_rule<R>() made.
template <typename R>
const typename R::Options& options_of(const FusedRule& rule) {
  return static_cast<const FusedRuleOf<R>&>(rule).all;
}

// Throws unless the value is finite and at least 0.
void check_option(std::string_view name, double value);

}  // namespace lockstep
