// The timeline of an engine: which task ran where and when. Written in Chrome's trace-event format, which Perfetto
// and chrome://tracing open.
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
  std::int64_t begin_ns = 0;  // steady clock, since the trace was made
  std::int64_t end_ns = 0;
};

struct TraceLane {
  std::string device;
  std::string name;
};

class Trace {
 public:
  Trace();
  std::int64_t now_ns() const;
  void add(TraceRecord record);
  void set_lane(int lane, TraceLane description);
  std::vector<TraceRecord> records() const;
  // One process a device, one thread a lane.
  void write_json(std::ostream& out) const;

 private:
  mutable std::mutex mutex_;
  std::int64_t start_ns_ = 0;
  std::vector<TraceRecord> records_;
  std::vector<TraceLane> lanes_;
};

}  // namespace lockstep
