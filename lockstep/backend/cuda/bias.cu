#include "lockstep/backend/cuda/bias.h"

#include <algorithm>

#include "lockstep/backend/cuda/launch.h"

namespace lockstep {
namespace {

template <typename T>
struct MasterOf { using type = float; };
template <>
struct MasterOf<double> { using type = double; };
template <typename T>
using Master = typename MasterOf<T>::type;

// y seen as [outer, channels, inner]: inner is H * W in plain layout, 1 in channels-last, where pixels are outer.
struct Extents {
  std::int64_t outer, channels, inner;
};

Extents extents(const View& y) {
  const Shape& s = y.shape;
  if (s.rank() == 2) return {s[0], s[1], 1};
  const std::int64_t pixels = s[2] * s[3];
  return y.layout == Layout::channels_last ? Extents{s[0] * pixels, s[1], 1} : Extents{s[0], s[1], pixels};
}

constexpr int kThreads = 256;

template <typename T>
__global__ void add_bias_kernel(T* y, const Master<T>* bias, Extents e) {
  const std::int64_t n = e.outer * e.channels * e.inner;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    y[i] = T(Master<T>(y[i]) + bias[i / e.inner % e.channels]);
  }
}

// Partial sums, channel by channel: a block adds kRows of the outer * inner elements of 32 channels (inner = 1, threads
// side by side read side by side) or of one.
constexpr std::int64_t kRows = 1024;
constexpr int kColumns = 32, kLines = kThreads / kColumns;

template <typename M>
__device__ void add_lines(M (*sums)[kColumns], int lines) {
  for (int half = lines / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.y) < half) sums[threadIdx.y][threadIdx.x] += sums[threadIdx.y + half][threadIdx.x];
  }
}

template <typename T>
__global__ void sum_columns_kernel(const T* dy, Master<T>* partial, Extents e) {
  __shared__ Master<T> sums[kLines][kColumns];
  const std::int64_t c = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
  const std::int64_t first = std::int64_t{blockIdx.y} * kRows;
  const std::int64_t last = first + kRows < e.outer ? first + kRows : e.outer;
  Master<T> sum = 0;
  if (c < e.channels) {
    for (std::int64_t r = first + threadIdx.y; r < last; r += kLines) sum += Master<T>(dy[r * e.channels + c]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  add_lines(sums, kLines);
  if (threadIdx.y == 0 && c < e.channels) partial[blockIdx.y * e.channels + c] = sums[0][threadIdx.x];
}

template <typename T>
__global__ void sum_planes_kernel(const T* dy, Master<T>* partial, Extents e) {
  __shared__ Master<T> sums[kThreads];
  const std::int64_t c = blockIdx.x, n = e.outer * e.inner;
  const std::int64_t first = std::int64_t{blockIdx.y} * kRows, last = first + kRows < n ? first + kRows : n;
  Master<T> sum = 0;
  for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads) {
    sum += Master<T>(dy[(i / e.inner * e.channels + c) * e.inner + i % e.inner]);
  }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) partial[blockIdx.y * e.channels + c] = sums[0];
}

template <typename M>
__global__ void sum_partials_kernel(const M* partial, M* db, std::int64_t parts, std::int64_t channels) {
  const std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  M sum = 0;
  for (std::int64_t p = 0; p < parts; ++p) sum += partial[p * channels + c];
  db[c] = sum;
}

unsigned blocks(std::int64_t n, std::int64_t each) { return static_cast<unsigned>((n + each - 1) / each); }

// Calls visit(element) for the floating types, with the type that CUDA's kernels use for them.
template <typename Visit>
void visit_floating(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f32: return visit(float{});
    case DType::bf16: return visit(BFloat16{});
    case DType::f64: return visit(double{});
    default: fail("bias: the tensor is {}, expected a floating type", name(dtype));
  }
}

}  // namespace

void add_bias(CudaContext& context, const View& y, const View& bias) {
  if (y.numel() == 0) return;
  visit_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr std::int64_t kMostBlocks = 4096;
    launch(add_bias_kernel<T>, static_cast<unsigned>(std::min<std::int64_t>(kMostBlocks, blocks(y.numel(), kThreads))),
           kThreads, 0, context.stream(), y.as<T>(), static_cast<const Master<T>*>(bias.as<Master<T>>()), extents(y));
  });
}

std::size_t bias_gradient_scratch(const View& dy) {
  const Extents e = extents(dy);
  return blocks(e.outer * e.inner, kRows) * static_cast<std::size_t>(e.channels) *
         (dy.dtype == DType::f64 ? sizeof(double) : sizeof(float));
}

void sum_bias_gradient(CudaContext& context, const View& dy, const View& db, void* scratch) {
  const Extents e = extents(dy);
  visit_floating(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    using M = Master<T>;
    const unsigned parts = blocks(e.outer * e.inner, kRows);
    auto* partial = static_cast<M*>(scratch);
    check(parts <= 65535, "conv2d: {} elements of a channel, expected at most {}", e.outer * e.inner, 65535 * kRows);
    if (parts > 0 && e.inner == 1) {
      launch(sum_columns_kernel<T>, dim3(blocks(e.channels, kColumns), parts), dim3(kColumns, kLines), 0,
             context.stream(), static_cast<const T*>(dy.as<T>()), partial, e);
    } else if (parts > 0) {
      launch(sum_planes_kernel<T>, dim3(static_cast<unsigned>(e.channels), parts), kThreads, 0, context.stream(),
             static_cast<const T*>(dy.as<T>()), partial, e);
    }
    launch(sum_partials_kernel<M>, blocks(e.channels, kThreads), kThreads, 0, context.stream(),
           static_cast<const M*>(partial), db.as<M>(), std::int64_t{parts}, e.channels);
  });
}

}  // namespace lockstep
