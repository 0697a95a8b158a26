// The timeline of an engine: which task ran where and when, and what it waited for. Written in Chrome's
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
  // The task's place in the order of pushing, and that of the last task of another lane that held it up; -1:
  // none.
  std::int64_t order = -1;
  std::int64_t waited_for = -1;
  // When the task began: unfinished tasks of its lane, itself included, and bytes in use on its device (-1:
  // unknown).
  std::int64_t queued = 0;
  std::int64_t device_bytes = -1;
};

// What one lane did. A lane records into memory of its own, so that lanes do not wait for one another.
class TraceLane {
 public:
  // Times in nanoseconds of Trace::steady_ns(). A record that finds no memory is lost.
  void add(std::string_view name, TraceRecord record) noexcept;

 private:
  friend class Trace;
  TraceLane(int index, std::string device, std::string name, std::size_t room);

  const int index_;
  const std::string device_;
  const std::string name_;
  const std::size_t room_;
  mutable std::mutex mutex_;  // between the lane and who reads
  // Record i is at i % room_, as long as it is one of the last room_.
  std::vector<TraceRecord> records_;
  std::int64_t added_ = 0;
};

struct TraceOptions {
  // A lane keeps its latest records, so that a long run takes bounded memory: about 100 bytes each.
  std::size_t records_per_lane = 1 << 16;
};

// May be read while lanes record.
class Trace {
 public:
  explicit Trace(TraceOptions options = {});

  // The lanes in order of their index, from 0.
  std::shared_ptr<TraceLane> add_lane(std::string device, std::string name);
  struct LaneName {
    std::string device;
    std::string name;
  };
  std::vector<LaneName> lanes() const;

  // In order of beginning. Where a lane has lost its first records, those of the others are left out up to
  // there: what is given is complete.
  std::vector<TraceRecord> records() const;
  // One process a device, one thread a lane; arrows from each task to those of other lanes that it held up;
  // counters for the tasks queued in each lane and the bytes in use on each device.
  void write_json(std::ostream& out) const;

  // Now, as in the records: since the trace was made.
  std::int64_t elapsed_ns() const { return steady_ns() - start_ns_; }
  static std::int64_t steady_ns();

 private:
  std::vector<std::shared_ptr<TraceLane>> all_lanes() const;

  const TraceOptions options_;
  const std::int64_t start_ns_;
  mutable std::mutex mutex_;  // of lanes_
  std::vector<std::shared_ptr<TraceLane>> lanes_;
};

}  // namespace lockstep
