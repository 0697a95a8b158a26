// Reductions whose order depends on the number of elements alone. The bits are the same for any number of threads and
// any vector instructions, because every machine uses the same lanes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/base/tree.h"

namespace lockstep::cpu {

// Returns the sum of term(i) over [0, n). Call it in vectorized().
template <typename F>
double lane_sum(std::int64_t n, const F& term) {
  constexpr std::int64_t kLanes = 16;
  std::int64_t i = 0;
  if (n < kLanes) {  // faster than folding the lanes
    decltype(term(i)) terms[kLanes];
    vector_loop(0, n, [&](std::int64_t k) { terms[k] = term(k); });
    double sum = 0;
    for (; i < n; ++i) sum += terms[i];
    return sum;
  }
  double lanes[kLanes] = {};
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i + lane < n; ++lane) lanes[lane] += term(i + lane);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// Returns the largest term(i) over [0, n), ignoring NaN; minus infinity if there is none. Call it in vectorized().
template <typename F>
auto lane_max(std::int64_t n, const F& term) {
  using C = decltype(term(n));
  constexpr std::int64_t kLanes = 32;
  C largest = -std::numeric_limits<C>::infinity();
  std::int64_t i = 0;
  if (n >= kLanes) {
    C lanes[kLanes];
    std::fill_n(lanes, kLanes, largest);
    for (; i + kLanes <= n; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        C x = term(i + lane);
        lanes[lane] = x > lanes[lane] ? x : lanes[lane];
      }
    }
    for (C x : lanes) largest = x > largest ? x : largest;
  }
  for (; i < n; ++i) {
    C x = term(i);
    largest = x > largest ? x : largest;
  }
  return largest;
}

inline constexpr std::int64_t kSumBlock = 4096;
inline std::int64_t sum_blocks(std::int64_t n) { return (n + kSumBlock - 1) / kSumBlock; }

// sums[k] = the sum of term(i) over block k of [0, n), on the threads of the lane.
template <typename F>
void block_sums(const KernelContext& ctx, std::int64_t n, double* sums, const F& term) {
  parallel_for(ctx, n, kSumBlock, [&](std::int64_t begin, std::int64_t end) {
    vectorized(
        [&] { sums[begin / kSumBlock] = lane_sum(end - begin, [&](std::int64_t i) { return term(begin + i); }); });
  });
}

// Returns the sum of `sums`, added in the tree of base/tree.h.
inline double tree_total(const double* sums, std::int64_t count) {
  return tree_fold(
             0, static_cast<std::size_t>(count), [=](std::size_t i) { return std::optional(sums[i]); },
             [](double a, double b) { return std::optional(a + b); })
      .value_or(0);
}

}  // namespace lockstep::cpu
