// Kernels that walk along one axis: cumulative sums, and the index of the largest element.
#pragma once

#include "lockstep/backend/cuda/element.cuh"

namespace lockstep::cuda {

// One thread per column.
template <typename T>
__global__ void cumsum_kernel(bool reverse, const T* x, T* y, std::int64_t outer, std::int64_t n, std::int64_t inner) {
  const std::int64_t i = thread_number();
  if (i >= outer * inner) return;
  const std::int64_t first = i / inner * n * inner + i % inner;
  // Add i64 modulo 2^64.
  using Sum = std::conditional_t<std::is_same_v<T, std::int64_t>, std::uint64_t, double>;
  Sum sum = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t at = first + (reverse ? n - 1 - k : k) * inner;
    sum += static_cast<Sum>(widened(x[at]));
    y[at] = convert<T>(sum);
  }
}

// NaN counts as the largest; the first among equals wins.
template <typename C>
__device__ bool is_better(C a, std::int64_t i, C b, std::int64_t j) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return a_nan;
  return a > b || (!(a < b) && i < j);
}

// One warp per row.
template <typename T>
__global__ void argmax_kernel(const T* x, std::int64_t* y, std::int64_t rows, std::int64_t k) {
  using C = Compute<T>;
  const std::int64_t row = thread_number() / 32;
  if (row >= rows) return;
  const std::int64_t lane = threadIdx.x % 32;
  x += row * k;
  std::int64_t best = std::min(lane, k - 1);
  C largest = widened(x[best]);
  for (std::int64_t i = lane + 32; i < k; i += 32) {
    const C value = widened(x[i]);
    if (is_better(value, i, largest, best)) largest = value, best = i;
  }
  for (int bits = 16; bits > 0; bits /= 2) {
    const C other = __shfl_xor_sync(0xffffffffu, largest, bits);
    const std::int64_t at = __shfl_xor_sync(0xffffffffu, best, bits);
    if (is_better(other, at, largest, best)) largest = other, best = at;
  }
  if (lane == 0) y[row] = best;
}

}  // namespace lockstep::cuda
