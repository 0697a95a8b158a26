// The state of an optimizer as named tensors.
#include <map>
#include <set>
#include <utility>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"

namespace lockstep {
namespace {

// Beside the states that Optimizer names.
constexpr std::string_view kSteps = "step.";

}  // namespace

// A slot's part of a given state; no values for a parameter that never had a gradient.
struct Optimizer::SlotState {
  std::vector<Array> values;
  std::int64_t steps = 0;
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
      all.emplace_back(state_names_[k] + "." + slot.parameter.name(), slot.states[k].at(0).to(Device()));
    }
  }
  for (const Slot& slot : slots_) {
    if (slot.steps.empty()) continue;
    all.emplace_back(std::string(kSteps) + slot.parameter.name(), slot.steps[0].to(Device()));
  }
  return all;
}

std::vector<Optimizer::SlotState> Optimizer::match(const StateDict& state, std::int64_t steps) const {
  check_names();
  check(steps >= 0, "optimizer: {} steps, expected at least 0", steps);
  std::map<std::string_view, const Tensor*> given;
  for (auto& [name, tensor] : state) given.emplace(name, &tensor);
  // Older versions counted only the optimizer's own steps.
  const auto first_count = given.lower_bound(kSteps);
  const bool counted = counts_steps_ && first_count != given.end() && first_count->first.starts_with(kSteps);
  std::vector<SlotState> found(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Parameter& p = slots_[i].parameter;
    const auto take = [&](std::string_view prefix) -> const Tensor* {
      const auto it = given.find(std::string(prefix) + p.name());
      return it == given.end() ? nullptr : given.extract(it).mapped();
    };
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
    found[i].steps = steps;
    if (count == nullptr) continue;
    check(count->shape() == Shape{1} && count->dtype() == DType::i64, "optimizer: {}{} is {}, expected [1] i64", kSteps,
          p.name(), count->describe());
    found[i].steps = count->item<std::int64_t>();
    check(found[i].steps >= 0 && found[i].steps <= std::int64_t{1} << 53, "optimizer: {}{} is {}, expected 0 to 2^53",
          kSteps, p.name(), found[i].steps);
  }
  if (!given.empty())
    fail("optimizer: the state has {}, which belongs to none of the optimizer's parameters", given.begin()->first);
  return found;
}

void Optimizer::check_state_dict(const StateDict& state, std::int64_t steps) const { match(state, steps); }

void Optimizer::load_state_dict(const StateDict& state, std::int64_t steps) {
  const std::vector<SlotState> found = match(state, steps);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    check(found[i].values.empty() || slots_[i].parameter.shape_known(),
          "optimizer: the shape of {} is not known yet; run the model once", slots_[i].parameter.name());
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const SlotState& loaded = found[i];
    const bool has_state = !loaded.values.empty();
    // Existing memory is kept: recorded steps use it.
    if (has_state) make_states(slot);
    for (std::size_t k = 0; k < slot.states.size(); ++k) {
      for (const Array& replica : slot.states[k]) {
        has_state ? ops::copy_(loaded.values[k], replica) : ops::fill_(replica, 0);
      }
    }
    for (const Array& count : slot.steps) {
      ops::fill_(count, has_state ? static_cast<double>(loaded.steps) : 0);
    }
  }
  add_random_steps(steps - this->steps());
  steps_ = steps;
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
