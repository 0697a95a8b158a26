// The timeline of an engine: which task ran where and when. Written in Chrome's trace-event format, which
// Perfetto and chrome://tracing open.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

struct TraceRecord {
  std::string name;
  int lane = 0;
  std::int64_t begin_ns = 0;  // since the trace was made
  std::int64_t end_ns = 0;
};

// What one lane did. A lane records into a list of its own, so that lanes do not wait for one another.
class TraceLane {
 public:
  // In nanoseconds of steady_ns(). A record that finds no memory is lost.
  void add(const std::string& name, std::int64_t begin_ns, std::int64_t end_ns) noexcept;

 private:
  friend class Trace;
  TraceLane(int index, std::string device, std::string name);

  const int index_;
  const std::string device_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::vector<TraceRecord> records_;
};

// May be read while lanes record.
class Trace {
 public:
  Trace();

  // The lanes in order of their index, from 0.
  std::shared_ptr<TraceLane> add_lane(std::string device, std::string name);
  // In order of beginning.
  std::vector<TraceRecord> records() const;
  // One process a device, one thread a lane.
  void write_json(std::ostream& out) const;

  static std::int64_t steady_ns();

 private:
  std::vector<std::shared_ptr<TraceLane>> lanes() const;

  const std::int64_t start_ns_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<TraceLane>> lanes_;
};

}  // namespace lockstep
