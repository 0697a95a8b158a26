#include "lockstep/train/data_wait.h"

#include <algorithm>

#include "lockstep/runtime/device_state.h"

namespace lockstep {

DataWait::DataWait(std::span<const Device> devices) : devices_(devices.size()) {
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const DeviceState& state = state_of(devices[d], "trainer");
    for (const LaneId lane : state.compute_lanes) lanes_.push_back({state.engine, lane, d});
  }
}

DataWait::Times DataWait::busy() const {
  Times times;
  for (const Lane& lane : lanes_) times.push_back(lane.engine->busy(lane.id));
  return times;
}

void DataWait::measure(const std::function<void()>& take) {
  const Times before = busy();
  const auto begin = std::chrono::steady_clock::now();
  take();
  const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin;
  const Times after = busy();
  Times computed(devices_);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    auto& most = computed[lanes_[i].device];
    most = std::max(most, after[i] - before[i]);
  }
  waited_ += std::max(std::chrono::nanoseconds(0), waited - *std::ranges::min_element(computed));
}

}  // namespace lockstep
