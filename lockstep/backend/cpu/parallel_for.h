// Loops on the threads of one lane.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/backend/context.h"
#include "lockstep/engine/thread_team.h"

namespace lockstep {

// Calls fn(begin, end) for [0, grain), [grain, 2 grain), ... up to `count`, on ctx.threads threads. Chunk k begins at k
// * grain. The chunks depend on count and grain alone, so results computed chunk by chunk have the same bits on any
// number of threads. If chunks throw, this throws the first chunk's exception after all threads are done.
template <typename F>
void parallel_for(const KernelContext& ctx, std::int64_t count, std::int64_t grain, const F& fn) {
  const std::int64_t chunks = (count + grain - 1) / grain;
  const auto run = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t k = first; k < last; ++k) fn(k * grain, std::min(count, (k + 1) * grain));
  };
  if (ctx.threads <= 1 || chunks <= 1) return run(0, chunks);
  // More parts than threads, so that a thread that comes late gets fewer parts.
  const std::int64_t parts = std::min<std::int64_t>(chunks, 4 * ctx.threads);
  ctx.team->run(static_cast<int>(parts), [&](int part) { run(chunks * part / parts, chunks * (part + 1) / parts); });
}

}  // namespace lockstep
