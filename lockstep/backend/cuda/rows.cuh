// Kernels in which a warp or a block computes each row separately.
#pragma once

#include "lockstep/backend/cuda/tree.cuh"

namespace lockstep::cuda {

// A block computes each row that is longer than this, except in f64; a warp computes each other row.
inline constexpr int kLongRow = 1024;

// The kGroup threads that share a row.
template <int kGroup>
struct Group {
  std::int64_t row;
  int thread;

  __device__ Group() : row(thread_number() / kGroup), thread(static_cast<int>(threadIdx.x) % kGroup) {}

  template <typename C>
  __device__ C sum(C x) const {
    if constexpr (kGroup == 32) {
      return warp_sum(x);
    } else {
      return block_sum(x);
    }
  }
  // Returns the largest x, none of which may be NaN.
  template <typename C>
  __device__ C max(C x) const {
    for (int bits = 16; bits > 0; bits /= 2) {
      const C other = __shfl_xor_sync(0xffffffffu, x, bits);
      x = other > x ? other : x;
    }
    if constexpr (kGroup > 32) {
      __shared__ C largest[kGroup / 32];
      __syncthreads();  // before the next use of `largest`
      if (thread % 32 == 0) largest[thread / 32] = x;
      __syncthreads();
      for (const C other : largest) x = other > x ? other : x;
    }
    return x;
  }
  // Calls f(i) for the elements of a row.
  template <typename F>
  __device__ void for_each(std::int64_t k, const F& f) const {
    for (std::int64_t i = thread; i < k; i += kGroup) f(i);
  }
};

// Calls launch_rows(element, threads of a row, grid) for rows of k elements. The grid has a block even if there are no
// rows.
template <typename F>
void visit_rows(DType dtype, const char* operation, std::int64_t rows, std::int64_t k, const F& launch_rows) {
  visit_floating(dtype, operation, [&](auto zero) {
    const std::int64_t some_rows = std::max<std::int64_t>(rows, 1);
    if constexpr (!std::is_same_v<decltype(zero), double>) {
      if (k > kLongRow) {
        return launch_rows(zero, std::integral_constant<int, kThreads>{}, dim3(static_cast<unsigned>(some_rows)));
      }
    }
    launch_rows(zero, std::integral_constant<int, 32>{}, blocks_for(some_rows * 32));
  });
}

}  // namespace lockstep::cuda
