// The state of an optimizer as named tensors.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "lockstep/engine/pending_updates.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"

namespace lockstep {
namespace {

// Beside the states that Optimizer names.
constexpr std::string_view kSteps = "step.";
// Of the whole optimizer. Names of parameters' states have a point.
constexpr std::string_view kAllSteps = "steps";
constexpr std::string_view kRates = "learning_rates";
// In front of the groups' rates: the initial, base, and current rate of the optimizer.
constexpr std::size_t kOwnRates = 3;
// The rate of a group that follows the optimizer's.
constexpr double kFollows = -1;

std::int64_t count_in(const Tensor& count, std::string_view name) {
  check(count.shape() == Shape{1} && count.dtype() == DType::i64, "optimizer: {} is {}, expected [1] i64", name,
        count.describe());
  const auto steps = count.item<std::int64_t>();
  check(steps >= 0 && steps <= std::int64_t{1} << 53, "optimizer: {} is {}, expected 0 to 2^53", name, steps);
  return steps;
}

}  // namespace

// A slot's part of a given state; no values for a parameter that never had a gradient.
struct Optimizer::SlotState {
  std::vector<Array> values;
  std::int64_t steps = 0;
};

struct Optimizer::LoadedState {
  std::vector<SlotState> slots;
  std::int64_t steps = 0;
  const Tensor* rates = nullptr;  // older versions saved none
};

// The state has one entry for each name.
void Optimizer::check_names() const {
  if (state_names_.empty()) return;
  std::set<std::string_view> names;
  for (const Slot& slot : slots_) {
    const Parameter& p = slot.parameter;
    check(!p.initialized() || names.insert(p.name()).second,
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
      if (slot.states.empty()) continue;
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
  std::ranges::copy(all, rates.view().as<double>());
  return rates;
}

void Optimizer::check_rates(const Tensor& rates) const {
  const auto expected = static_cast<std::int64_t>(kOwnRates + groups_.size());
  check(rates.shape() == Shape{expected} && rates.dtype() == DType::f64,
        "optimizer: {} is {}, expected [{}] f64 for {} group{}", kRates, rates.describe(), expected, groups_.size(),
        groups_.size() == 1 ? "" : "s");
  const auto* values = rates.view().as<double>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(expected); ++i) {
    check((std::isfinite(values[i]) && values[i] >= 0) || (i >= kOwnRates && values[i] == kFollows),
          "optimizer: {} has {} at element {}, expected at least 0", kRates, values[i], i);
  }
}

void Optimizer::set_rates(const Tensor& rates) {
  const auto* values = rates.view().as<double>();
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
  const bool counted = counts_steps_ && first_count != given.end() && first_count->first.starts_with(kSteps);
  std::vector<SlotState>& found = loaded.slots;
  found.resize(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Parameter& p = slots_[i].parameter;
    const auto take = [&](std::string_view prefix) { return take_name(std::string(prefix) + p.name()); };
    for (const std::string& state_name : state_names_) {
      const Tensor* value = take(state_name + ".");
      if (value == nullptr) continue;
      check(p.fits(value->shape()) && value->dtype() == p.dtype(), "optimizer: {}.{} is {}, expected {} {}", state_name,
            p.name(), value->describe(), p.shape(), name(p.dtype()));
      found[i].values.push_back(value->array());
    }
    const Tensor* count = counted ? take(kSteps) : nullptr;
    const bool complete = found[i].values.size() == state_names_.size() && (!counted || count != nullptr);
    check(complete || (found[i].values.empty() && count == nullptr),
          "optimizer: the state of {} is incomplete, expected all or none of its tensors", p.name());
    found[i].steps = count == nullptr ? loaded.steps : count_in(*count, std::string(kSteps) + p.name());
  }
  if (!given.empty())
    fail("optimizer: the state has {}, which belongs to none of the optimizer's parameters", given.begin()->first);
  return loaded;
}

void Optimizer::check_state_dict(const StateDict& state, std::optional<std::int64_t> steps) const {
  match(state, steps);
}

void Optimizer::load_state_dict(const StateDict& state, std::optional<std::int64_t> steps) {
  const LoadedState loaded = match(state, steps);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    check(loaded.slots[i].values.empty() || slots_[i].parameter.shape_known(),
          "optimizer: the shape of {} is not known yet; run the model once", slots_[i].parameter.name());
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const SlotState& from = loaded.slots[i];
    const bool has_state = !from.values.empty();
    // Existing memory is kept: recorded steps use it.
    if (has_state) make_states(slot);
    for (std::size_t k = 0; k < slot.states.size(); ++k) {
      for (const Array& replica : slot.states[k]) {
        has_state ? ops::copy_(from.values[k], replica) : ops::fill_(replica, 0);
      }
    }
    for (const Array& count : slot.steps) {
      ops::fill_(count, has_state ? static_cast<double>(from.steps) : 0);
    }
  }
  if (loaded.rates != nullptr) set_rates(*loaded.rates);
  // A failure of a former step that comes out later must not change the loaded number.
  for (RandomState* random : random_states()) random->settle_steps();
  steps_ -= updates_->wait_left_out();
  add_random_steps(loaded.steps - steps_);
  steps_ = loaded.steps;
}

// Each once, though every device has it.
std::set<RandomState*> Optimizer::random_states() const {
  std::set<RandomState*> states;
  for (const Slot& slot : slots_) {
    for (Device device : slot.parameter.devices()) states.insert(state_of(device, "optimizer").random.get());
  }
  return states;
}

void Optimizer::add_random_steps(std::int64_t count) const {
  for (RandomState* state : random_states()) state->add_steps(count);
}

}  // namespace lockstep
