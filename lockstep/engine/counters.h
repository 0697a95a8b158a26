// How many tasks an engine has seen.
#pragma once

#include <cstdint>

namespace lockstep {

struct EngineCounters {
  std::int64_t pushed = 0;
  std::int64_t completed = 0;  // including failed and skipped ones
  std::int64_t failed = 0;
  std::int64_t skipped = 0;
};

}  // namespace lockstep
