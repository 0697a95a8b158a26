// What an engine has done so far, and what it has before it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

struct EngineCounters {
  std::int64_t pushed = 0;
  std::int64_t completed = 0;  // including failed and skipped ones
  std::int64_t failed = 0;
  std::int64_t skipped = 0;  // including cancelled ones
};

struct LaneCounters {
  // As in LaneOptions.
  std::string device;
  std::string name;
  std::int64_t completed = 0;
  // Tasks that have not finished: the one that runs, those behind it, and what its stream has still to do.
  std::int64_t queued = 0;
  // Since the lane was made: while its worker had something to run. A stream's own time is in the timeline.
  std::chrono::nanoseconds busy{0};
};

}  // namespace lockstep
