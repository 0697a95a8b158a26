// Helpers of the f32 kernels: parts of a lane's scratch memory, and parts of the work for its threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_runs.h"
#include "lockstep/backend/cpu/parallel_for.h"

namespace lockstep::cpu {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t blocks_of(std::int64_t n) { return ceil_div(n, kBlock); }
constexpr std::int64_t round_up(std::int64_t n) { return blocks_of(n) * kBlock; }

// Blocks of channels per partial sum of a convolution.
constexpr std::int64_t sum_blocks(std::int64_t taps, std::int64_t blocks) {
  return std::clamp<std::int64_t>(kTerms / (taps * kBlock), 1, blocks);
}

// Parts of a context's scratch memory, in f32. Each begins at a multiple of 64 bytes.
class ScratchParts {
 public:
  // Adds a part of `count` elements and returns its offset.
  std::int64_t add(std::int64_t count) {
    const std::int64_t at = size_;
    size_ += round_up(count);
    return at;
  }
  // Returns the memory of all parts. Invalidates earlier results.
  float* take(KernelContext& context) const {
    return static_cast<float*>(context.scratch.get(static_cast<std::size_t>(size_) * sizeof(float)));
  }

 private:
  std::int64_t size_ = 0;
};

// Cuts [0, count) into a part for each thread and calls f(thread, begin, end).
template <typename F>
void for_each_thread(const KernelContext& context, std::int64_t count, const F& f) {
  const std::int64_t threads = std::clamp<std::int64_t>(count, 1, std::max(context.threads, 1));
  parallel_for(context, threads, 1,
               [&](std::int64_t t, std::int64_t) { f(t, count * t / threads, count * (t + 1) / threads); });
}

}  // namespace lockstep::cpu
