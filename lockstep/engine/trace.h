// Internal: the timeline of an engine: which task ran where and when, and what it waited for. Written in Chrome's
// trace-event format, which Perfetto and chrome://tracing open.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct TraceRecord {
  std::string name = {};
  int lane = 0;
  std::int64_t begin_ns = 0;  // since the trace was made
  std::int64_t end_ns = 0;
  // The task's place in the order of pushing, and the place of the last task of another lane that delayed it; -1: none.
  std::int64_t order = -1;
  std::int64_t waited_for = -1;
  // At the task's beginning: the unfinished tasks of its lane, including itself, and the bytes in use on its device
  // (-1: unknown).
  std::int64_t queued = 0;
  std::int64_t device_bytes = -1;
};

// The records of one lane. Each lane records into its own memory, so lanes do not wait for one another.
class TraceLane {
 public:
  // Times are in nanoseconds of Trace::steady_ns(). A record for which there is no memory is lost.
  void add(std::string_view name, TraceRecord record) noexcept;

 private:
  friend class Trace;
  TraceLane(int index, std::string device, std::string name, std::size_t room);

  const int index_;
  const std::string device_;
  const std::string name_;
  const std::size_t room_;
  mutable std::mutex mutex_;  // between the lane and readers
  // Record i is at i % room_ while it is one of the last room_ records.
  std::vector<TraceRecord> records_;
  std::int64_t added_ = 0;
};

struct TraceOptions {
  // Number of latest records that a lane keeps, about 100 bytes each, so a long run takes bounded memory.
  std::size_t records_per_lane = 1 << 16;
};

// Other threads may read it while lanes record.
class Trace {
 public:
  explicit Trace(TraceOptions options = {});

  // Add the lanes in order of their index, from 0.
  std::shared_ptr<TraceLane> add_lane(std::string device, std::string name);
  struct LaneName {
    std::string device;
    std::string name;
  };
  std::vector<LaneName> lanes() const;

  // In order of beginning. If a lane has dropped its oldest records, all lanes' records up to that time are left out,
  // so the result is complete.
  std::vector<TraceRecord> records() const;
  // Writes one process per device and one thread per lane, arrows from each task to the tasks of other lanes that it
  // delayed, and counters for the tasks queued in each lane and the bytes in use on each device.
  void write_json(std::ostream& out) const;

  // The current time as in the records: nanoseconds since the trace was made.
  std::int64_t elapsed_ns() const { return steady_ns() - start_ns_; }
  static std::int64_t steady_ns();

 private:
  std::vector<std::shared_ptr<TraceLane>> all_lanes() const;

  const TraceOptions options_;
  const std::int64_t start_ns_;
  mutable std::mutex mutex_;  // protects lanes_
  std::vector<std::shared_ptr<TraceLane>> lanes_;
};

}  // namespace lockstep
