#include "lockstep/optim/weight_average.h"

#include <algorithm>
#include <array>

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {
namespace {

// An exact copy, which belongs to no shard.
Array copy_of(const Array& x) {
  Array copy = ops::empty(x.shape(), x.dtype(), x.device()).with_shard(-1);
  ops::copy_(x, copy);
  return copy;
}

}  // namespace

WeightAverage::WeightAverage(const Module& module, double decay) : decay_(decay) {
  check(decay >= 0 && decay < 1, "weight average: decay {}, expected at least 0 and below 1", decay);
  for (auto& [name, parameter] : module.named_parameters()) {
    // swap() must exchange a parameter that modules share only once.
    if (std::ranges::find(entries_, parameter, &Entry::parameter) != entries_.end()) continue;
    entries_.push_back({name, parameter, {}});
  }
}

Array WeightAverage::weight_beside(const Entry& entry, std::size_t device) {
  const std::vector<Device>& devices = entry.parameter.devices();
  const std::vector<Array>& averages = entry.averages;
  bool same = averages.size() == devices.size();
  for (std::size_t d = 0; same && d < devices.size(); ++d) same = averages[d].device() == devices[d];
  check(same, "weight average: {} has moved to {}, expected the devices of the first update", entry.name, str(devices));
  return entry.parameter.data(devices[device])->array();
}

namespace {

// Waits.
bool is_left_out(const Resource& step, Device device) {
  Engine& engine = *state_of(device, "weight average").engine;
  engine.wait_unused(step);
  const FailurePtr failure = engine.failure(step);
  return failure && !failure->cancelled;
}

}  // namespace

void WeightAverage::update() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& e = entries_[i];
    if (!e.parameter.shape_known()) continue;
    // Spreads the parameters over a device's lanes.
    ops::ShardScope lane(static_cast<int>(i));
    const std::vector<Device>& devices = e.parameter.devices();
    const Resource step = e.parameter.latest_step();
    // All replicas or none, because an allocation may fail.
    if (e.averages.empty()) {
      if (step && is_left_out(step, devices[0])) continue;
      std::vector<Array> copies;
      for (Device device : devices) copies.push_back(copy_of(e.parameter.data(device)->array()));
      e.averages = std::move(copies);
      continue;
    }
    std::vector<std::array<Array, 2>> addends;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      const Array weight = ops::to_layout(weight_beside(e, d), e.averages[d].layout());
      addends.push_back({ops::affine(e.averages[d], decay_, 0), ops::affine(weight, 1 - decay_, 0)});
    }
    // If the step is left out, so is this update, on all replicas.
    const ops::UpdateScope with_step({&step, step ? 1U : 0U});
    for (std::size_t d = 0; d < devices.size(); ++d) {
      const auto& [kept, added] = addends[d];
      ops::launch("weight average", {kept, added, e.averages[d]}, {e.averages[d]},
                  [a = kept.view(), w = added.view(), out = e.averages[d].view()](Backend& b, KernelContext& c) {
                    b.run(c, kernels::Binary{BinaryOp::add, a, w, out});
                  });
    }
  }
}

// Allocates everything before the first change.
void WeightAverage::swap() {
  std::vector<std::vector<Array>> kept(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    ops::ShardScope lane(static_cast<int>(i));
    for (std::size_t d = 0; d < e.averages.size(); ++d) kept[i].push_back(copy_of(weight_beside(e, d)));
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& e = entries_[i];
    ops::ShardScope lane(static_cast<int>(i));
    for (std::size_t d = 0; d < e.averages.size(); ++d) ops::copy_(e.averages[d], weight_beside(e, d));
    e.averages = std::move(kept[i]);
  }
}

AveragedWeights::AveragedWeights(const WeightAverage& average) {
  for (const WeightAverage::Entry& e : average.entries_) {
    ops::ShardScope lane(static_cast<int>(replicas_.size()));
    for (std::size_t d = 0; d < e.averages.size(); ++d) {
      const Array place = WeightAverage::weight_beside(e, d);
      replicas_.push_back({place, copy_of(place)});
    }
  }
  std::size_t next = 0;
  for (const WeightAverage::Entry& e : average.entries_) {
    for (const Array& mean : e.averages) {
      ops::ShardScope lane(static_cast<int>(next));
      ops::copy_(mean, replicas_[next++].place);
    }
  }
}

AveragedWeights::~AveragedWeights() {
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    ops::ShardScope lane(static_cast<int>(i));
    ops::copy_(replicas_[i].weight, replicas_[i].place);
  }
}

StateDict WeightAverage::state_dict() const {
  StateDict state;
  for (const Entry& e : entries_) {
    if (e.averages.empty()) continue;
    const Array plain = ops::to_layout(e.averages[0], Layout::plain);
    state.emplace_back(e.name, Tensor(plain).to(Device()));
  }
  return state;
}

// Returns one tensor for each entry; none for an empty state.
std::vector<const Tensor*> WeightAverage::match(const StateDict& state) const {
  std::vector<const Tensor*> values;
  if (state.empty()) return values;
  check(state.size() == entries_.size(), "weight average: {} tensors, expected {}", state.size(), entries_.size());
  for (const Entry& e : entries_) {
    const auto found = std::ranges::find(state, e.name, &StateDict::value_type::first);
    check(found != state.end(), "weight average: {} is missing", e.name);
    const Tensor& value = found->second;
    check(e.parameter.fits(value.shape()) && value.dtype() == e.parameter.dtype(),
          "weight average: {} is {}, expected {} {}", e.name, value.describe(), e.parameter.shape().str(),
          name(e.parameter.dtype()));
    values.push_back(&value);
  }
  return values;
}

void WeightAverage::check_state_dict(const StateDict& state) const { match(state); }

void WeightAverage::load_state_dict(const StateDict& state) {
  const std::vector<const Tensor*> values = match(state);
  if (values.empty()) {
    for (Entry& e : entries_) e.averages.clear();
    return;
  }
  for (const Entry& e : entries_) {
    e.parameter.place();
    check(!e.parameter.devices().empty(), "weight average: the model of {} has ended", e.name);
    check(e.parameter.shape_known(), "weight average: the shape of {} is not known yet; run the model once", e.name);
  }
  // All or none, because an allocation may fail.
  std::vector<std::vector<Array>> loaded(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Parameter& parameter = entries_[i].parameter;
    ops::ShardScope lane(static_cast<int>(i));
    for (Device device : parameter.devices()) {
      loaded[i].push_back(copy_of(parameter.data(device)->array()));
      ops::copy_((*values[i])->array(), loaded[i].back());
    }
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].averages = std::move(loaded[i]);
}

}  // namespace lockstep
