#include "lockstep/engine/trace.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/error.h"

namespace lockstep {

TraceLane::TraceLane(int index, std::string device, std::string name, std::size_t room)
    : index_(index), device_(std::move(device)), name_(std::move(name)), room_(room) {}

void TraceLane::add(std::string_view name, TraceRecord record) noexcept try {
  record.name = name;
  record.lane = index_;
  const std::lock_guard lock(mutex_);
  const std::size_t at = static_cast<std::size_t>(added_) % room_;
  if (at == records_.size()) records_.emplace_back();
  std::swap(records_[at], record);  // the old record is destroyed after the lock
  ++added_;
} catch (const std::bad_alloc&) {
}

Trace::Trace(TraceOptions options) : options_(options), start_ns_(steady_ns()) {
  check(options.records_per_lane > 0, "trace: {} records a lane, expected at least 1", options.records_per_lane);
}

std::shared_ptr<TraceLane> Trace::add_lane(std::string device, std::string name) {
  const std::lock_guard lock(mutex_);
  const int index = static_cast<int>(lanes_.size());
  lanes_.push_back(
      std::shared_ptr<TraceLane>(new TraceLane(index, std::move(device), std::move(name), options_.records_per_lane)));
  return lanes_.back();
}

std::vector<Trace::LaneName> Trace::lanes() const {
  std::vector<LaneName> names;
  for (const auto& lane : all_lanes()) names.push_back({lane->device_, lane->name_});
  return names;
}

std::vector<TraceRecord> Trace::records() const {
  std::vector<TraceRecord> all;
  std::int64_t complete_from = start_ns_;
  for (const auto& lane : all_lanes()) {
    const std::lock_guard lock(lane->mutex_);
    all.insert(all.end(), lane->records_.begin(), lane->records_.end());
    if (static_cast<std::size_t>(lane->added_) <= lane->room_) continue;
    const std::size_t oldest = static_cast<std::size_t>(lane->added_) % lane->room_;
    complete_from = std::max(complete_from, lane->records_[oldest].begin_ns);
  }
  std::erase_if(all, [&](const TraceRecord& record) { return record.begin_ns < complete_from; });
  for (TraceRecord& record : all) {
    record.begin_ns -= start_ns_;
    record.end_ns -= start_ns_;
  }
  std::ranges::stable_sort(all, {}, &TraceRecord::begin_ns);
  return all;
}

std::int64_t Trace::steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::vector<std::shared_ptr<TraceLane>> Trace::all_lanes() const {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

}  // namespace lockstep
