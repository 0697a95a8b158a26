// Loops on the threads of one lane.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#include "lockstep/backend/context.h"

namespace lockstep {

// Calls fn(begin, end) for [0, grain), [grain, 2 grain), ... up to `count`, on ctx.threads threads. Chunk k begins at k
// * grain. The chunks depend on count and grain alone, so results computed chunk by chunk have the same bits on any
// number of threads. If chunks throw, this throws the first chunk's exception after all threads are done.
//
// More than one thread means an OpenMP region. oneDNN's own loops run in one, and libgomp keeps one team for both. A
// separate pool would compete with that team, whose threads spin for a while after each region.
template <typename F>
void parallel_for(const KernelContext& ctx, std::int64_t count, std::int64_t grain, const F& fn) {
  const std::int64_t chunks = (count + grain - 1) / grain;
  const auto run = [&](std::int64_t k) { fn(k * grain, std::min(count, (k + 1) * grain)); };
  if (ctx.threads <= 1 || chunks <= 1) {
    for (std::int64_t k = 0; k < chunks; ++k) run(k);
    return;
  }
  // An exception must not leave the region, so keep the one that a plain loop would have thrown first.
  std::exception_ptr error;
  std::int64_t failed = chunks;
#pragma omp parallel for schedule(static) num_threads(ctx.threads)
  for (std::int64_t k = 0; k < chunks; ++k) {
    try {
      run(k);
    } catch (...) {
#pragma omp critical(lockstep_parallel_for)
      if (k < failed) {
        failed = k;
        error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
