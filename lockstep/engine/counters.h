// Internal: counters of an engine: what it has done and what is pending.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/base/export.h"

namespace lockstep {

struct EngineCounters {
  std::int64_t pushed = 0;
  std::int64_t completed = 0;  // including failed and skipped ones
  std::int64_t failed = 0;
  std::int64_t skipped = 0;  // including cancelled ones
};

struct LaneCounters {
  // From LaneOptions.
  std::string device;
  std::string name;
  std::int64_t completed = 0;
  // Number of unfinished tasks: the running one, those that wait in the lane, and those in flight on its stream.
  std::int64_t queued = 0;
  // Time in which the worker had something to run, since the lane was made. The timeline has the stream's own time.
  std::chrono::nanoseconds busy{0};
};

}  // namespace lockstep
