#include "lockstep/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/autograd/reducer.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/backend/copy.h"
#include "lockstep/base/in_use.h"
#include "lockstep/engine/pending_updates.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/optimizer.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/optim/fused_rule.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/step_recorder.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// Prefix of a parameter's step count: "step.fc.weight". The prefix of a parameter's state is the state's name.
constexpr std::string_view kSteps = "step.";
// Entries of the whole optimizer. They have no dot, unlike those of parameters.
constexpr std::string_view kAllSteps = "steps";
constexpr std::string_view kRates = "learning_rates";
// The first entries of "learning_rates", before those of the groups: the optimizer's initial, base, and current rate.
constexpr std::size_t kOwnRates = 3;
// The entry of a group that follows the optimizer's rate.
constexpr double kFollows = -1;

std::int64_t count_in(const Tensor& count, std::string_view name) {
  check(count.shape() == Shape{1} && count.dtype() == DType::i64, "optimizer: {} is {}, expected [1] i64", name,
        count.describe());
  const auto steps = count.item<std::int64_t>();
  check(steps >= 0 && steps <= std::int64_t{1} << 53, "optimizer: {} is {}, expected 0 to 2^53", name, steps);
  return steps;
}

}  // namespace

void check_option(std::string_view name, double value) {
  check(std::isfinite(value) && value >= 0, "optimizer: {} {}, expected at least 0", name, value);
}

void Optimizer::check_at_least_zero(std::string_view what, double value) { check_option(what, value); }

ParameterGroups groups_by_name(const Module& net, std::vector<std::pair<std::string, ParameterGroup>> by_prefix) {
  const auto named = net.named_parameters();
  std::vector<ParameterGroup> groups;
  for (const auto& [prefix, group] : by_prefix) {
    check(group.parameters.empty(), "groups_by_name: the group of '{}' lists parameters, expected options alone",
          prefix);
    groups.push_back(group);
  }
  groups.emplace_back();
  for (const Parameter& p : net.parameters()) {
    std::size_t i = 0;
    // A parameter that modules share may have several names.
    const auto has = [&](const std::string& prefix) {
      return std::ranges::any_of(named, [&](const auto& n) { return n.second == p && n.first.starts_with(prefix); });
    };
    while (i < by_prefix.size() && !has(by_prefix[i].first)) ++i;
    groups[i].parameters.push_back(p);
  }
  for (std::size_t i = 0; i < by_prefix.size(); ++i) {
    check(!groups[i].parameters.empty(), "groups_by_name: no further parameter's name begins with '{}'",
          by_prefix[i].first);
  }
  if (groups.back().parameters.empty()) groups.pop_back();
  return groups;
}

Optimizer::Optimizer(const ParameterGroups& groups, const Rate& learning_rate, double weight_decay,
                     std::vector<std::string> state_names)
    : Optimizer(groups, learning_rate, weight_decay, nullptr, std::move(state_names)) {
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    const std::string& name = state_names_[k];
    const bool again = std::ranges::find(state_names_, name) != state_names_.begin() + static_cast<std::ptrdiff_t>(k);
    check(!name.empty() && name.find('.') == std::string::npos && name + "." != kSteps && !again,
          "optimizer: a state named \"{}\", expected different names without points, and not \"step\"", name);
  }
}

namespace {

std::vector<std::string> names_of_states(const FusedRule& rule) {
  std::vector<std::string> names;
  for (const FusedRule::State& state : rule.states()) names.push_back(state.name);
  return names;
}

}  // namespace

Optimizer::Optimizer(const ParameterGroups& groups, const Rate& learning_rate, double weight_decay,
                     std::shared_ptr<const FusedRule> rule)
    : Optimizer(groups, learning_rate, weight_decay, rule, names_of_states(*rule)) {}

Optimizer::Optimizer(const ParameterGroups& groups, const Rate& learning_rate, double weight_decay,
                     std::shared_ptr<const FusedRule> rule, std::vector<std::string> state_names)
    : state_names_(std::move(state_names)), rule_(std::move(rule)), weight_decay_(weight_decay),
      initial_learning_rate_(learning_rate.base()), base_learning_rate_(learning_rate.base()),
      learning_rate_(learning_rate.base()), updates_(std::make_shared<PendingUpdates>()) {
  use_ = std::make_shared<InUse>();
  check(groups.size() > 0, "optimizer: no parameters");
  check_at_least_zero("learning rate", learning_rate.base());
  check_at_least_zero("weight decay", weight_decay);
  for (const ParameterGroup& group : groups) {
    append_group(group);
    check(!group.lr || learning_rate_ > 0,
          "optimizer: group {} has its own learning rate, which scales with the optimizer's, but the optimizer's is 0: "
          "expected above 0",
          groups_.size() - 1);
    if (group.lr) groups_.back().lr = *group.lr;
    groups_.back().own_lr = group.lr;
  }
  if (!learning_rate.scheduled()) return;
  schedule_ = learning_rate.schedule();
  follow_schedule();
}

void Optimizer::append_group(const ParameterGroup& group) {
  const std::size_t number = groups_.size();
  const bool has_own = group.lr || group.weight_decay || !group.options.empty();
  check(!group.parameters.empty(), "optimizer: no parameters{}",
        number > 0 || has_own ? fmt::format(" in group {}", number)
                              : ", expected some: those of a model are its children's, which make<M>() or add() "
                                "registers; a layer that is a plain member is no child");
  Group added{.lr = learning_rate_,
              .weight_decay = group.weight_decay.value_or(weight_decay_),
              .own_lr = {},
              .own_weight_decay = group.weight_decay.has_value(),
              .rule = rule_};
  check_at_least_zero(fmt::format("learning rate of group {}", number), group.lr.value_or(added.lr));
  check_at_least_zero(fmt::format("weight decay of group {}", number), added.weight_decay);
  if (!group.options.empty()) {
    check(rule_ != nullptr, "optimizer: group {} has the option {}, expected lr and weight_decay", number,
          group.options[0].first);
    added.rule = rule_->with(group.options);
  }
  std::vector<Slot> slots;
  for (const Parameter& p : group.parameters) {
    for (const Slot& slot : slots_) {
      if (slot.parameter == p)
        fail("optimizer: parameter {} is in group {} and in group {}", p.name(), slot.group, number);
    }
    check(std::ranges::find(slots, p, &Slot::parameter) == slots.end(), "optimizer: parameter {} is listed twice",
          p.name());
    slots.push_back({p, number, p.claim(), std::vector<std::vector<Array>>(state_names_.size()), {}});
  }
  groups_.push_back(std::move(added));
  slots_.insert(slots_.end(), slots.begin(), slots.end());
  has_own_options_ = has_own_options_ || has_own;
}

void Optimizer::add_group(const ParameterGroup& group) {
  const InUse::Scope use(*use_, "add_group: the optimizer");
  std::vector<std::optional<double>> rates(groups_.size() + 1);
  rates.back() = group.lr;
  check_rates_of_groups(rates);
  append_group(group);
  set_rates_of_groups(rates);
  ++changes_;
}

std::vector<Parameter> Optimizer::parameters() const {
  std::vector<Parameter> all;
  for (const Slot& slot : slots_) all.push_back(slot.parameter);
  return all;
}

const Optimizer::Group& Optimizer::group_at(std::size_t group) const {
  check(group < groups_.size(), "optimizer: there is no group {}, expected a number below {}", group, groups_.size());
  return groups_[group];
}

void Optimizer::set_learning_rate(const Rate& lr) {
  scale_rates(lr.scheduled() ? lr.at(steps()) : lr.base());
  base_learning_rate_ = lr.base();
  schedule_ = lr.scheduled() ? std::optional(lr.schedule()) : std::nullopt;
}

void Optimizer::set_scheduled_learning_rate(double lr) {
  check(!schedule_, "optimizer: its learning rate is a schedule of its own, expected no other schedule");
  scale_rates(lr);
}

// The rate is a function of the number of steps, so that a loaded optimizer goes on with the same rates.
void Optimizer::follow_schedule() {
  if (schedule_) scale_rates(scheduled_lr(*schedule_, steps_));
}

void Optimizer::scale_rates(double lr) {
  check_at_least_zero("learning rate", lr);
  learning_rate_ = lr;
  for (Group& group : groups_) group.lr = group.own_lr ? *group.own_lr * (lr / reference_rate()) : lr;
}

double Optimizer::rate_beside_groups() const {
  return schedule_ || schedule_runs_ || base_learning_rate_ == 0 ? learning_rate_ : base_learning_rate_;
}

void Optimizer::set_learning_rate(std::size_t group, double lr) {
  group_at(group);
  check_at_least_zero("learning rate", lr);
  const double beside = rate_beside_groups();
  check(beside > 0, "optimizer: cannot set a group's learning rate while the optimizer's is 0");
  groups_[group].own_lr = lr * (reference_rate() / beside);
  groups_[group].lr = lr;
  has_own_options_ = true;
}

void Optimizer::check_rates_of_groups(std::span<const std::optional<double>> given) const {
  if ((!schedule_ && !schedule_runs_) || learning_rate_ > 0 || (given.size() == 1 && !groups_[0].own_lr)) return;
  for (std::size_t g = 0; g < given.size(); ++g) {
    check(given[g].value_or(0) == 0,
          "optimizer: learning rate {} of group {} while a schedule has set the optimizer's to 0, which has no ratio "
          "to it: expected a rate that is set before or after that step",
          given[g].value_or(0), g);
  }
}

void Optimizer::set_rates_of_groups(std::span<const std::optional<double>> given) {
  if (groups_.size() == 1 && !groups_[0].own_lr) {
    if (given[0]) set_learning_rate(*given[0]);
    return;
  }
  // No rate has a ratio to a rate of 0.
  const double largest = std::ranges::max(given).value_or(0);
  if (rate_beside_groups() == 0 && largest > 0) {
    initial_learning_rate_ = base_learning_rate_ = learning_rate_ = largest;
    for (Group& group : groups_) group.own_lr = 0;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!given[g]) continue;
    if (rate_beside_groups() > 0) {
      set_learning_rate(g, *given[g]);
    } else {  // the given rate is 0, and its ratio to any rate is 0
      groups_[g].own_lr = groups_[g].lr = 0;
      has_own_options_ = true;
    }
  }
}

OptimizerOptions Optimizer::options(std::size_t group) const {
  const Group& its = group_at(group);
  OptimizerOptions all = {{"lr", its.lr}, {"weight_decay", its.weight_decay}};
  if (its.rule != nullptr) std::ranges::copy(its.rule->options(), std::back_inserter(all));
  return all;
}

void Optimizer::set_options(std::size_t group, const OptimizerOptions& changed) {
  group_at(group);
  std::vector<OptimizerOptions> all(groups_.size());
  all[group] = changed;
  set_options(all);
}

void Optimizer::set_options(std::span<const OptimizerOptions> changed) {
  const InUse::Scope use(*use_, "set_options: the optimizer");
  check(changed.size() == groups_.size(), "optimizer: options of {} groups, expected {}", changed.size(),
        groups_.size());
  std::vector<Group> groups = groups_;
  std::vector<std::optional<double>> rates(groups.size());
  bool more_than_rates = false;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    OptimizerOptions of_rule;
    for (const auto& [name, value] : changed[g]) {
      if (name == "lr") {
        check_at_least_zero(fmt::format("learning rate of group {}", g), value);
        rates[g] = value;
        continue;
      }
      more_than_rates = true;
      if (name == "weight_decay") {
        check_at_least_zero(fmt::format("weight decay of group {}", g), value);
        groups[g].weight_decay = value;
      } else {
        of_rule.emplace_back(name, value);
      }
    }
    if (of_rule.empty()) continue;
    check(groups[g].rule != nullptr, "optimizer {}: it has no option {}, expected lr or weight_decay", rule().name,
          of_rule[0].first);
    groups[g].rule = groups[g].rule->with(of_rule);
  }
  check_rates_of_groups(rates);
  if (more_than_rates) {
    // A parameter has all states or none.
    std::vector<Slot> slots = slots_;
    for (Slot& slot : slots) {
      if (has_states(slot)) make_states(slot, groups[slot.group].rule.get());
    }
    slots_ = std::move(slots);
    groups_ = std::move(groups);
    has_own_options_ = has_own_options_ || groups_.size() > 1;
    ++changes_;
  }
  set_rates_of_groups(rates);
}

double Optimizer::weight_decay() const {
  const auto follows = std::ranges::find(groups_, false, &Group::own_weight_decay);
  return follows == groups_.end() ? weight_decay_ : follows->weight_decay;
}

std::string Optimizer::describe_groups() const {
  if (groups_.size() == 1 && !has_own_options_) return "";
  // An initial rate of 0 says nothing about the ratios.
  const double others = std::ranges::any_of(groups_, [](const Group& g) { return g.own_lr.has_value(); })
                            ? reference_rate()
                            : initial_learning_rate_;
  std::string text;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::string names;
    for (const Slot& slot : slots_) {
      if (slot.group == g) names += (names.empty() ? "" : ", ") + slot.parameter.name();
    }
    std::string more;
    if (groups_[g].rule != groups_[0].rule) {
      const OptimizerOptions its = groups_[g].rule->options(), first = groups_[0].rule->options();
      for (std::size_t i = 0; i < its.size(); ++i) {
        if (its[i] != first[i]) more += fmt::format(", {} {}", its[i].first, its[i].second);
      }
    }
    text += fmt::format("{}lr {}, weight_decay {}{}: {}", g > 0 ? "; " : "", groups_[g].own_lr.value_or(others),
                        groups_[g].weight_decay, more, names);
  }
  return text;
}

// Each gradient is summed on one device; the gradients are spread over all devices. The device does not change the sum.
Device Optimizer::home(std::size_t slot) const {
  const auto& devices = slots_[slot].parameter.devices();
  return devices[slot % devices.size()];
}

bool Optimizer::is_used(std::size_t state, const FusedRule* rule) const {
  return rule == nullptr || rule->states()[state].used;
}

bool Optimizer::has_states(const Slot& slot) const {
  return !slot.steps.empty() || std::ranges::any_of(slot.states, [](const auto& state) { return !state.empty(); });
}

std::vector<Array> Optimizer::new_state(const Parameter& p) const {
  std::vector<Array> state;
  for (Device device : p.devices()) {
    state.push_back(ops::empty(p.shape(), p.dtype(), device).with_shard(-1));
    ops::fill_(state.back(), 0);
  }
  return state;
}

std::vector<Array> Optimizer::new_count(const Parameter& p, std::int64_t steps) const {
  std::vector<Array> count;
  for (Device device : p.devices()) {
    count.push_back(ops::full({1}, static_cast<double>(steps), DType::i64, device).with_shard(-1));
  }
  return count;
}

void Optimizer::make_states(Slot& slot, const FusedRule* rule) const {
  const Parameter& p = slot.parameter;
  p.tensor();  // its place is final from now on
  // A repeated step must not clear the new states again.
  const RecordingPause pause;
  // All or none, because an allocation may fail.
  Slot made = slot;
  // A momentum buffer that exists has had its first gradient.
  if (rule != nullptr && rule->counts_steps() && slot.steps.empty())
    made.steps = new_count(p, has_states(slot) ? 1 : 0);
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    if (slot.states[k].empty() && is_used(k, rule)) made.states[k] = new_state(p);
  }
  slot = std::move(made);
}

void Optimizer::advance() {
  ++steps_;
  add_random_steps(1);
}

// Kernels get the numbers as arguments, so nothing waits for host memory.
void Optimizer::write_rates(std::span<const Array> places) const {
  ops::ShardScope lane(-1);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const Array& tensor : places) ops::fill_(ops::narrow(tensor, static_cast<std::int64_t>(g), 1), groups_[g].lr);
  }
}

std::int64_t Optimizer::steps() const {
  steps_ -= updates_->take_left_out();
  return steps_;
}

std::uint64_t Optimizer::hook_changes() const {
  std::uint64_t all = 0;
  for (const Slot& slot : slots_) all += slot.parameter.gradient_state().hook_changes();
  return all;
}

// Returns the losses of the gradients. A step fails with its loss: the gradients may cover only a part of the batch.
std::vector<Resource> Optimizer::losses() const {
  std::vector<Resource> all;
  for (const Slot& slot : slots_) slot.parameter.gradient_state().passes().list_losses(all);
  return all;
}

// What can fail, such as allocations and hooks, comes first; after that, only tasks are pushed, so that all replicas
// change or none.
void Optimizer::step() {
  const InUse::Scope use(*use_, "step: the optimizer");
  steps();  // forgets the outcomes of former steps
  check_scales("step");
  follow_schedule();
  std::vector<ReducedGradient> gradients(slots_.size());
  std::vector<Device> devices;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    // Spreads the sums over a device's lanes, too.
    ops::ShardScope lane(static_cast<int>(i));
    if (!slots_[i].parameter.initialized()) continue;
    gradients[i] = slots_[i].parameter.reduced_gradient(home(i));
    if (!gradients[i].sum.defined()) continue;
    make_states(slots_[i], groups_[slots_[i].group].rule.get());
    for (Device d : slots_[i].parameter.devices()) {
      if (std::ranges::find(devices, d) == devices.end()) devices.push_back(d);
    }
  }
  check_used_by_other(gradients);
  // All gradients were dropped with a failed batch whose error has been thrown. The step is left out, as it would have
  // been before the error was thrown.
  const auto dropped = [](const Slot& slot) { return slot.parameter.gradient_state().dropped(); };
  if (devices.empty() && std::ranges::any_of(slots_, dropped)) {
    zero_grad();
    add_random_steps(0);  // the next step draws as if the batch had not been there
    return;
  }
  // Every replica of every parameter is updated, or none.
  std::vector<Resource> needed = losses();
  for (const ReducedGradient& g : gradients) {
    if (g.sum.defined()) needed.push_back(g.sum.resource());
    if (g.present.defined()) needed.push_back(g.present.resource());
  }
  for (const Array& scale : scales_) needed.push_back(scale.resource());
  // A recorded step has no outcome of its own for each repetition.
  const std::shared_ptr<Engine> engine =
      devices.empty() || StepRecorder::current() ? nullptr : state_of(devices[0], "step").engine;
  const Resource done = engine ? engine->make_resource() : Resource();
  Resource first_writes = done;
  // By device. They belong to this call, because a recorded step may contain several calls.
  std::vector<Array> rates(devices.size());
  if (StepRecorder* recorder = StepRecorder::current()) {
    RecordingPause pause;
    const auto count = static_cast<std::int64_t>(groups_.size());
    for (std::size_t d = 0; d < devices.size(); ++d) rates[d] = ops::empty({count}, DType::f64, devices[d]);
    write_rates(rates);
    recorder->valid_while(
        [this, changes = changes_, hooks = hook_changes()] { return changes == changes_ && hooks == hook_changes(); });
    recorder->before_each([this, rates] {
      follow_schedule();
      advance();
      write_rates(rates);
    });
  }
  const Commit commit = rule_ ? describe_fused(gradients, devices, rates) : describe_own(gradients, devices, needed);
  advance();
  commit(needed, &first_writes);
  // Other gradients of the same passes are old now.
  for (const Slot& slot : slots_) slot.parameter.gradient_state().mark_used();
  forget_scales();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].parameter.gradient_state().clear_behind(updates_, gradients[i].sum.defined());
  }
  for (const Slot& slot : slots_) slot.parameter.set_latest_step(done);
  if (!engine) return;
  updates_->add(engine, done);
  for (RandomState* random : random_states()) random->count_if_done(engine, done);
}

Optimizer::Commit Optimizer::describe_fused(std::span<const ReducedGradient> gradients, std::span<const Device> devices,
                                            std::span<const Array> rates) {
  std::vector<FusedRule::Group> groups;
  std::vector<std::vector<std::size_t>> used(groups_.size());  // states by group
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups.push_back({groups_[g].lr, groups_[g].weight_decay, groups_[g].rule});
    for (std::size_t k = 0; k < state_names_.size(); ++k) {
      if (is_used(k, groups_[g].rule.get())) used[g].push_back(k);
    }
  }
  std::vector<std::vector<std::vector<Update<Array>>>> lists(devices.size());
  std::vector<Array> scales(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const Device device = devices[d];
    std::size_t lanes = state_of(device, "step").compute_lanes.size();
    std::vector<std::vector<Update<Array>>>& items = lists[d];
    items.resize(lanes);
    scales[d] = ops::readable_from(scale_on(device), device);
    std::vector<std::int64_t> load(lanes, 0);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!gradients[i].sum.defined()) continue;
      const Parameter& p = slots_[i].parameter;
      auto at = std::ranges::find(p.devices(), device);
      if (at == p.devices().end()) continue;
      auto replica = static_cast<std::size_t>(at - p.devices().begin());
      auto [grad, present] = gradients[i];
      grad = ops::readable_from(grad, device);
      present = ops::readable_from(present, device);
      const std::vector<std::size_t>& its = used[slots_[i].group];
      auto state = [&](std::size_t k) { return k < its.size() ? slots_[i].states[its[k]][replica] : Array(); };
      auto lane = static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
      load[lane] += grad.numel();
      const bool counts = groups[slots_[i].group].rule->counts_steps();
      const Array steps = counts ? slots_[i].steps[replica] : Array();
      items[lane].push_back({.weight = p.tensor()->on(device),
                             .grad = grad,
                             .states = {state(0), state(1), state(2)},
                             .present = present,
                             .steps = steps,
                             .group = slots_[i].group});
    }
  }
  return [rule = rule_, lists = std::move(lists), scales = std::move(scales), groups = std::move(groups),
          rates = std::vector(rates.begin(), rates.end())](std::span<const Resource> needed, Resource* first_writes) {
    for (std::size_t d = 0; d < lists.size(); ++d) {
      for (std::size_t lane = 0; lane < lists[d].size(); ++lane) {
        ops::ShardScope scope(static_cast<int>(lane));
        const ops::UpdateScope one_step(needed, first_writes);
        rule->update(lists[d][lane], groups, scales[d], rates[d]);
      }
    }
  };
}

// Steps of the program's own optimizers.

struct Optimizer::ParameterUpdate::State {
  std::string name;
  std::vector<Array> stored;  // by device
  std::vector<Array> working;
  std::vector<std::uint64_t> versions;  // of working
  Tensor value;                         // made of working, until update() assigns another one
  bool asked = false, kept = false;
};

namespace {

std::vector<Array> copies_of(std::span<const Array> arrays) {
  std::vector<Array> copies;
  for (const Array& array : arrays) {
    copies.push_back(ops::empty_like(array));
    ops::copy_(array, copies.back());
  }
  return copies;
}

std::uint64_t version_of(const Array& array) { return array.storage()->written(); }

// Returns whether `value` no longer consists of `working`, or `working` no longer has these versions.
bool is_changed(const Tensor& value, std::span<const Array> working, std::span<const std::uint64_t> versions) {
  for (std::size_t d = 0; d < working.size(); ++d) {
    if (value->on(working[d].device()).storage() != working[d].storage() || version_of(working[d]) != versions[d]) {
      return true;
    }
  }
  return false;
}

}  // namespace

void Optimizer::update(ParameterUpdate&) {
  fail("optimizer {}: expected update(ParameterUpdate&), which computes the new weight", rule().name);
}

Tensor& Optimizer::ParameterUpdate::state(std::string_view name) {
  keep(name);
  State& state = **std::ranges::find(states_, name, &State::name);
  state.kept = false;
  state.asked = true;
  return state.value;
}

const Tensor& Optimizer::ParameterUpdate::keep(std::string_view name) {
  const auto found = std::ranges::find(states_, name, &State::name);
  check(found != states_.end(), "optimizer: there is no state {}, expected a name given to the constructor", name);
  State& state = **found;
  if (state.working.empty()) {
    state.working = copies_of(state.stored);
    for (const Array& array : state.working) state.versions.push_back(version_of(array));
    state.value = replicated_tensor(state.working);
  }
  state.kept = state.kept || !state.asked;
  return state.value;
}

Optimizer::ParameterUpdate Optimizer::make_update(std::size_t slot, const ReducedGradient& gradient) const {
  const Parameter& p = slots_[slot].parameter;
  std::vector<Array> weights, grads;
  for (Device device : p.devices()) {
    weights.push_back(p.tensor()->on(device));
    Array grad = ops::to_device(gradient.sum, device, {.non_blocking = true});
    if (const Array scale = scale_on(device); scale.defined()) {
      // Round the factor as the fused rules do, which compute in the type of the weights.
      const Array factor = ops::to_dtype(ops::to_device(scale, device, {.non_blocking = true}), p.dtype());
      grad = ops::binary(BinaryOp::multiply, grad, factor);
    }
    grads.push_back(std::move(grad));
  }
  ParameterUpdate u;
  u.weight = replicated_tensor(copies_of(weights));
  u.grad = replicated_tensor(std::move(grads));
  u.lr = groups_[slots_[slot].group].lr;
  u.weight_decay = groups_[slots_[slot].group].weight_decay;
  u.step = steps_ + 1;
  u.parameter = p;
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    auto state = std::make_shared<ParameterUpdate::State>();
    state->name = state_names_[k];
    state->stored = slots_[slot].states[k];
    u.states_.push_back(std::move(state));
  }
  return u;
}

void Optimizer::check_update(const ParameterUpdate& u) const {
  const Parameter& p = u.parameter;
  const auto check_value = [&](std::string_view what, const Tensor& value) {
    check(value.defined() && value->kind == Kind::replicated && value.shape() == p.shape() &&
              value.dtype() == p.dtype() && value.devices() == p.devices(),
          "optimizer {}: the new {} of {} is {}, expected {} {} on all of its devices, computed from the update's "
          "tensors",
          rule().name, what, p.name(), value, p.shape(), name(p.dtype()));
  };
  check_value("weight", u.weight);
  for (const auto& state : u.states_) {
    if (state->working.empty()) continue;
    check_value(state->name, state->value);
    const bool changed = is_changed(state->value, state->working, state->versions);
    check(changed || !state->asked,
          "optimizer {}: update() asked for the state {} of {} and left it as it is: expected an assignment to the "
          "reference that state() returns, a copy_from(), or keep(\"{}\")",
          rule().name, state->name, p.name(), state->name);
    check(!changed || state->asked, "optimizer {}: update() changed the state {} of {}, expected state(\"{}\")",
          rule().name, state->name, p.name(), state->name);
  }
}

Optimizer::Commit Optimizer::describe_own(std::span<const ReducedGradient> gradients, std::span<const Device> devices,
                                          std::vector<Resource>& needed) {
  if (StepRecorder* recorder = StepRecorder::current()) {
    recorder->refuse(fmt::format("the optimizer {} computes with numbers of the host", rule().name));
  }
  const NoGradGuard no_grad;
  const ops::ShardScope scope(-1);
  struct Changes {
    std::vector<Array> from, to;
  };
  std::vector<Changes> all(devices.size());  // by device
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!gradients[i].sum.defined()) continue;
    ParameterUpdate u = make_update(i, gradients[i]);
    std::vector<std::uint64_t> versions;
    for (Device device : u.parameter.devices()) versions.push_back(version_of(u.grad->on(device)));
    const Tensor grad = u.grad;
    update(u);
    check_update(u);
    for (std::size_t d = 0; d < versions.size(); ++d) {
      const Device device = u.parameter.devices()[d];
      check(version_of(grad->on(device)) == versions[d], "optimizer {}: update() changed the gradient of {} in place",
            rule().name, u.parameter.name());
      // A negative factor leaves the step out, and without a gradient in any process there is no step.
      Array left_out, present;
      if (const Array scale = scale_on(device); scale.defined()) {
        const Array here = ops::to_device(scale, device, {.non_blocking = true});
        left_out = ops::compare(CompareOp::lt, here, ops::scalar_like(here, 0));
      }
      if (gradients[i].present.defined()) {
        present = ops::to_device(gradients[i].present, device, {.non_blocking = true});
      }
      Changes& changes = all[static_cast<std::size_t>(std::ranges::find(devices, device) - devices.begin())];
      const auto add = [&](const Tensor& value, const Array& stored) {
        Array chosen = ops::to_layout(value->on(device), Layout::plain);
        const Shape shape = chosen.shape();
        if (left_out.defined()) chosen = ops::where(left_out, stored, chosen);
        if (present.defined()) chosen = ops::where(present, chosen, stored);
        if (chosen.shape() != shape) chosen = ops::reshape(chosen, shape);
        needed.push_back(chosen.resource());
        changes.from.push_back(std::move(chosen));
        changes.to.push_back(stored);
      };
      add(u.weight, u.parameter.tensor()->on(device));
      for (const auto& state : u.states_) {
        if (state->asked) add(state->value, state->stored[d]);
      }
    }
  }
  // One task for each device: all weights and states change, or none.
  return [all = std::move(all), name = rule().name](std::span<const Resource> needed_by_all, Resource* first_writes) {
    for (const Changes& changes : all) {
      std::vector<std::pair<View, View>> views;
      for (std::size_t i = 0; i < changes.from.size(); ++i) {
        views.emplace_back(changes.from[i].view(), changes.to[i].view());
      }
      const ops::ShardScope lane(-1);
      const ops::UpdateScope one_step(needed_by_all, first_writes);
      // What a skipped task both reads and writes keeps its value.
      std::vector<Array> reads = changes.from;
      reads.insert(reads.end(), changes.to.begin(), changes.to.end());
      ops::launch(name, reads, changes.to, [views = std::move(views)](Backend& backend, KernelContext& context) {
        for (const auto& [from, to] : views) backend.run(context, kernels::Copy{from, to});
      });
    }
  };
}

void Optimizer::zero_grad() {
  const InUse::Scope use(*use_, "zero_grad: the optimizer");
  forget_scales();
  for (Slot& slot : slots_) slot.parameter.zero_grad();
}

void Optimizer::forget_scales() {
  scales_.clear();
  scale_.reset();
}

// A step clears the gradients of a backward(), so a second optimizer of the same parameters would not see them.
void Optimizer::check_used_by_other(std::span<const ReducedGradient> gradients) const {
  const auto of = [&](std::size_t i) -> const ParameterGradient& { return slots_[i].parameter.gradient_state(); };
  std::vector<std::uint64_t> passes;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (gradients[i].sum.defined()) passes.push_back(of(i).latest_pass());
  }
  const bool has_none = passes.empty();
  std::erase(passes, 0);  // gradients that the program has set are of no pass
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (gradients[i].sum.defined() || !slots_[i].parameter.trainable() || !of(i).used_by_other(updates_)) continue;
    const bool of_one_pass = has_none || std::ranges::find(passes, of(i).latest_pass()) != passes.end();
    check(
        !of_one_pass,
        "step: another optimizer's step has used and cleared the gradient of parameter {}: expected one optimizer for "
        "it, or a backward() for each of the two steps",
        slots_[i].parameter.name());
  }
}

void Optimizer::check_any(std::string_view what, std::span<const Array> gradients) const {
  if (std::ranges::any_of(gradients, &Array::defined)) return;
  check(std::ranges::none_of(slots_, [](const Slot& slot) { return slot.parameter.gradient_state().dropped(); }),
        "{}: the gradients were dropped, because their batch failed: expected backward() of another batch before it",
        what);
  fail(
      "{}: none of the optimizer's parameters has a gradient (the first is \"{}\"): expected a call of backward() "
      "before it, on a loss of their model",
      what, slots_[0].parameter.name());
}

Array Optimizer::squared_norm(std::string_view what) const {
  std::vector<Array> gradients, present;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].parameter.initialized()) continue;
    ReducedGradient g = slots_[i].parameter.reduced_gradient(home(i));
    if (!g.sum.defined()) continue;
    gradients.push_back(std::move(g.sum));
    present.push_back(std::move(g.present));
  }
  check_any(what, gradients);
  return ops::squared_norm(gradients, present);
}

void Optimizer::set_scales(std::vector<Array> scales) {
  scale_ = std::make_shared<char>();
  for (const Slot& slot : slots_) slot.parameter.gradient_state().set_scale(scale_);
  scales_ = std::move(scales);
}

void Optimizer::check_scales(std::string_view what) {
  drop_failed_scales();
  if (!scale_) return;
  bool of_these = false;
  const Parameter* other = nullptr;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Parameter& p = slots_[i].parameter;
    if (!p.initialized() || !p.reduced_gradient(home(i)).sum.defined()) continue;
    if (p.gradient_state().has_scale(scale_)) {
      of_these = true;
    } else {
      other = &p;
    }
  }
  if (other == nullptr) return;
  check(!of_these,
        "{}: parameter \"{}\" has another gradient than when the optimizer's gradients were clipped or unscaled: "
        "expected clip_grad_norm() and unscale() behind the last backward()",
        what, other->name());
  scales_.clear();
  scale_.reset();
}

// Drops the scales of a failed batch once its error has been thrown, as the trees drop its gradients.
void Optimizer::drop_failed_scales() {
  if (scales_.empty()) return;
  Engine& engine = *scales_[0].storage()->engine;
  const std::uint64_t reports = engine.reports();
  if (std::exchange(reports_, reports) == reports) return;
  const auto failed = [&](const Array& scale) {
    engine.wait_unused(scale.resource());
    const FailurePtr why = engine.failure(scale.resource());
    return why && !engine.unreported(*why);
  };
  if (std::ranges::none_of(scales_, failed)) return;
  scales_.clear();
  scale_.reset();
}

void Optimizer::map_gradients(const std::function<Tensor(const Tensor& gradient, const Parameter& parameter)>& f) {
  const InUse::Scope use(*use_, "map_gradients: the optimizer");
  check_scales("map_gradients");
  std::vector<Array> found(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Parameter& p = slots_[i].parameter;
    p.gradient_state().check_summed();
    if (p.initialized()) found[i] = p.gradient_state().peek(home(i));
  }
  check_any("map_gradients", found);
  std::vector<Passes> passes(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!found[i].defined()) continue;
    const Parameter& p = slots_[i].parameter;
    passes[i] = p.gradient_state().passes();
    // Multiply as the step would: optimizers round the factor to the gradient's type.
    if (const Array scale = scale_on(home(i)); scale.defined()) {
      const Array near = ops::to_device(scale, found[i].device(), {.non_blocking = true});
      const Array factor = ops::to_dtype(near, p.dtype());
      found[i] = ops::binary(BinaryOp::multiply, found[i], factor);
    }
    found[i] = p.mapped("map_gradients", found[i], [&](const Tensor& g) { return f(g, p); });
  }
  // The factors are in the gradients now. A negative one still skips the step.
  std::vector<Array> scales;
  for (const Array& scale : scales_) {
    const Array skips = ops::compare(CompareOp::lt, scale, ops::scalar_like(scale, 0));
    scales.push_back(ops::where(skips, scale, ops::scalar_like(scale, 1)));
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (found[i].defined()) slots_[i].parameter.gradient_state().set(std::move(found[i]), std::move(passes[i]));
  }
  scales_ = std::move(scales);
  scale_.reset();
}

void Optimizer::clip_grad_value(double limit) {
  check(std::isfinite(limit) && limit > 0, "clip_grad_value: a limit of {}, expected a finite number above 0", limit);
  map_gradients([limit](const Tensor& g, const Parameter&) { return clamp(g, -limit, limit); });
}

Tensor Optimizer::clip_grad_norm(double max_norm) {
  const InUse::Scope use(*use_, "clip_grad_norm: the optimizer");
  check_scales("clip_grad_norm");
  Array squared = squared_norm("clip_grad_norm");
  if (scales_.empty()) {
    set_scales({ops::clip_scale(squared, max_norm)});
    return ops::unary(UnaryOp::sqrt, squared);
  }
  // The step will multiply the gradients by the scale that unscale() or another clipping left, so multiply the norm.
  Array scaled;
  std::vector<Array> scales;
  for (const Array& scale : scales_) {
    const Array factor = ops::binary(BinaryOp::multiply, scale, scale);
    const Array here = squared.device() == scale.device() ? squared : ops::to_device(squared, scale.device());
    scaled = ops::binary(BinaryOp::multiply, here, factor);
    const Array both = ops::binary(BinaryOp::multiply, scale, ops::clip_scale(scaled, max_norm));
    // A negative scale skips the step, whatever the norm is.
    const Array skips = ops::compare(CompareOp::lt, scale, ops::scalar_like(scale, 0));
    scales.push_back(ops::where(skips, scale, both));
  }
  set_scales(std::move(scales));
  return ops::unary(UnaryOp::sqrt, scaled);
}

void Optimizer::unscale(LossScaler& scaler, double max_norm) {
  const InUse::Scope use(*use_, "unscale: the optimizer");
  check_scales("unscale");
  check(scales_.empty(),
        "unscale: the gradients are already unscaled or clipped, expected one call of unscale() for each step, before "
        "clip_grad_norm()");
  const Array squared = squared_norm("unscale");
  const std::vector<Resource> needed = losses();
  const ops::UpdateScope one_step(needed);
  set_scales(scaler.update(squared, max_norm));
}

Array Optimizer::scale_on(Device device) const {
  for (const Array& scale : scales_) {
    if (scale.device() == device) return scale;
  }
  return scales_.empty() ? Array() : scales_[0];
}

// A slot's part of a given state; empty for a parameter that never had a gradient.
struct Optimizer::SlotState {
  std::vector<Array> values;  // by state; undefined if it is not given
  std::optional<std::int64_t> steps;
  bool empty() const { return !steps && std::ranges::none_of(values, &Array::defined); }
};

struct Optimizer::LoadedState {
  std::vector<SlotState> slots;
  std::int64_t steps = 0;
  const Tensor* rates = nullptr;  // older versions saved none
};

// Throws if two parameters have the same name, because the state has one entry for each name.
void Optimizer::check_names() const {
  std::set<std::string_view> names;
  for (const Slot& slot : slots_) {
    const Parameter& p = slot.parameter;
    bool used = has_states(slot);
    for (std::size_t k = 0; k < state_names_.size(); ++k) {
      used = used || is_used(k, groups_[slot.group].rule.get());
    }
    check(!used || !p.initialized() || names.insert(p.name()).second,
          "optimizer: two of its parameters are named {}, so their states have the same name: expected one model, or "
          "an optimizer for each model",
          p.name());
  }
}

StateDict Optimizer::state_dict() const {
  check_names();
  StateDict all;
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    for (const Slot& slot : slots_) {
      if (slot.states[k].empty()) continue;
      all.emplace_back(state_names_[k] + "." + slot.parameter.name(), ops::to_device(slot.states[k].at(0), kHost));
    }
  }
  for (const Slot& slot : slots_) {
    if (slot.steps.empty()) continue;
    all.emplace_back(std::string(kSteps) + slot.parameter.name(), ops::to_device(slot.steps[0], kHost));
  }
  all.emplace_back(kAllSteps, Tensor::from(std::vector<std::int64_t>{steps()}, {1}));
  all.emplace_back(kRates, rates());
  return all;
}

Tensor Optimizer::rates() const {
  std::vector<double> all{initial_learning_rate_, base_learning_rate_, learning_rate_};
  for (const Group& group : groups_) all.push_back(group.own_lr.value_or(kFollows));
  Tensor rates = Tensor::host({std::ssize(all)}, DType::f64);
  std::ranges::copy(all, rates.data_ptr<double>());
  return rates;
}

void Optimizer::check_rates(const Tensor& rates) const {
  const auto expected = static_cast<std::int64_t>(kOwnRates + groups_.size());
  check(rates.shape() == Shape{expected} && rates.dtype() == DType::f64,
        "optimizer: {} is {}, expected [{}] f64 for {} group{}", kRates, rates.describe(), expected, groups_.size(),
        groups_.size() == 1 ? "" : "s");
  const auto* values = rates.data_ptr<const double>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(expected); ++i) {
    check((std::isfinite(values[i]) && values[i] >= 0) || (i >= kOwnRates && values[i] == kFollows),
          "optimizer: {} has {} at element {}, expected at least 0", kRates, values[i], i);
  }
}

void Optimizer::set_rates(const Tensor& rates) {
  const auto* values = rates.data_ptr<const double>();
  initial_learning_rate_ = values[0];
  base_learning_rate_ = values[1];
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const double own = values[kOwnRates + g];
    groups_[g].own_lr = own == kFollows ? std::nullopt : std::optional(own);
    has_own_options_ = has_own_options_ || groups_[g].own_lr;
  }
  scale_rates(values[2]);
}

Optimizer::LoadedState Optimizer::match(const StateDict& state, std::optional<std::int64_t> steps) const {
  place();
  check_names();
  std::map<std::string_view, const Tensor*> given;
  for (auto& [name, tensor] : state) given.emplace(name, &tensor);
  const auto take_name = [&](std::string_view name) -> const Tensor* {
    const auto it = given.find(name);
    return it == given.end() ? nullptr : given.extract(it).mapped();
  };
  LoadedState loaded;
  const Tensor* all_steps = take_name(kAllSteps);
  check(steps || all_steps != nullptr, "optimizer: the state has no {}, expected it or a number of steps beside it",
        kAllSteps);
  loaded.steps = steps ? *steps : count_in(*all_steps, kAllSteps);
  check(loaded.steps >= 0, "optimizer: {} steps, expected at least 0", loaded.steps);
  loaded.rates = take_name(kRates);
  if (loaded.rates != nullptr) check_rates(*loaded.rates);
  // Older versions counted only the optimizer's own steps.
  const auto first_count = given.lower_bound(kSteps);
  const bool counted = rule_ != nullptr && rule_->may_count_steps() && first_count != given.end() &&
                       first_count->first.starts_with(kSteps);
  std::vector<SlotState>& found = loaded.slots;
  found.resize(slots_.size());
  std::string incomplete;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Parameter& p = slots_[i].parameter;
    const auto take = [&](std::string_view prefix) { return take_name(std::string(prefix) + p.name()); };
    const FusedRule* const rule = groups_[slots_[i].group].rule.get();
    bool complete = true;
    for (std::size_t k = 0; k < state_names_.size(); ++k) {
      const std::string& state_name = state_names_[k];
      const Tensor* value = take(state_name + ".");
      found[i].values.push_back(value == nullptr ? Array() : (*value)->array());
      complete = complete && (value != nullptr || !is_used(k, rule));
      if (value == nullptr) continue;
      check(p.fits(value->shape()) && value->dtype() == p.dtype(), "optimizer: {}.{} is {}, expected {} {}", state_name,
            p.name(), value->describe(), p.shape(), name(p.dtype()));
    }
    const bool counts = rule != nullptr && rule->counts_steps();
    if (const Tensor* count = counted ? take(kSteps) : nullptr; count != nullptr) {
      found[i].steps = count_in(*count, std::string(kSteps) + p.name());
    }
    complete = complete && (!counts || !counted || found[i].steps);
    if (!complete && !found[i].empty() && incomplete.empty()) incomplete = p.name();
    if (counts && !counted && !found[i].empty()) found[i].steps = loaded.steps;
  }
  if (!given.empty())
    fail("optimizer: the state has {}, which belongs to none of the optimizer's parameters", given.begin()->first);
  check(incomplete.empty(), "optimizer: the state of {} is incomplete, expected all or none of its tensors",
        incomplete);
  return loaded;
}

void Optimizer::place() const {
  for (const Slot& slot : slots_) slot.parameter.place();
}

void Optimizer::check_state_dict(const StateDict& state, std::optional<std::int64_t> steps) const {
  match(state, steps);
}

void Optimizer::load_state_dict(const StateDict& state, std::optional<std::int64_t> steps) {
  const LoadedState loaded = match(state, steps);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    check(loaded.slots[i].empty() || slots_[i].parameter.shape_known(),
          "optimizer: the shape of {} is not known yet; run the model once", slots_[i].parameter.name());
  }
  // Allocate first, because an allocation may fail. Keep existing memory, which recorded steps use, unless the loaded
  // state has none for the parameter: its next gradient then counts as its first.
  std::vector<Slot> slots = slots_;
  bool drops = false;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Parameter& p = slots[i].parameter;
    if (loaded.slots[i].empty()) {
      drops = drops || has_states(slots[i]);
      slots[i].states.assign(state_names_.size(), {});
      slots[i].steps.clear();
      continue;
    }
    make_states(slots[i], groups_[slots[i].group].rule.get());
    for (std::size_t k = 0; k < state_names_.size(); ++k) {
      if (slots[i].states[k].empty() && loaded.slots[i].values[k].defined()) slots[i].states[k] = new_state(p);
    }
    if (slots[i].steps.empty() && loaded.slots[i].steps) slots[i].steps = new_count(p, 0);
  }
  slots_ = std::move(slots);
  if (drops) ++changes_;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const SlotState& from = loaded.slots[i];
    for (std::size_t k = 0; k < state_names_.size(); ++k) {
      for (const Array& replica : slots_[i].states[k]) {
        from.values[k].defined() ? ops::copy_(from.values[k], replica) : ops::fill_(replica, 0);
      }
    }
    for (const Array& count : slots_[i].steps) ops::fill_(count, static_cast<double>(from.steps.value_or(0)));
  }
  if (loaded.rates != nullptr) set_rates(*loaded.rates);
  // A failure of a former step that is thrown later must not change the loaded number.
  for (RandomState* random : random_states()) random->settle_steps();
  steps_ -= updates_->wait_left_out();
  add_random_steps(loaded.steps - steps_);
  steps_ = loaded.steps;
}

// Devices of one Runtime share a state; it is listed once.
std::set<RandomState*> Optimizer::random_states() const {
  std::set<RandomState*> states;
  for (const Slot& slot : slots_) {
    for (Device device : slot.parameter.devices()) states.insert(state_of(device, "optimizer").random().get());
  }
  return states;
}

void Optimizer::add_random_steps(std::int64_t count) const {
  for (RandomState* state : random_states()) state->add_steps(count);
}

}  // namespace lockstep
