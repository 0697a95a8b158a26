#include "lockstep/backend/random.h"

#include <cmath>

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/base/philox.h"

namespace lockstep {
inline namespace random_cu {

using namespace cuda;

// Each thread draws one block and computes four elements from it: y[i], ..., y[i + 3] = value(block of draws, i).
template <typename T, typename Value>
__device__ void draw(RandomKey key, T* y, std::int64_t n, bool aligned, const Value& value) {
  const std::int64_t block = thread_number(), i = block * 4;
  if (i >= n) return;
  const auto values = value(philox(key, static_cast<std::uint64_t>(block)), i);
  Vector<T, 4> out;
#pragma unroll
  for (int k = 0; k < 4; ++k) out.at[k] = convert<T>(values[k]);
  if (i + 4 <= n) return store(y + i, out, aligned);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (i + k < n) y[i + k] = out.at[k];
  }
}

using Draws = std::array<std::uint32_t, 4>;
using Values = std::array<double, 4>;

template <typename T>
__global__ void uniform_kernel(RandomKey key, double low, double high, T* y, std::int64_t n, bool aligned) {
  draw(key, y, n, aligned, [=](const Draws& draws, std::int64_t) {
    Values values;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      values[k] = low + (high - low) * unit_uniform<T>(draws[k]);
      if (widened(convert<T>(values[k])) == widened(convert<T>(high))) values[k] = low;
    }
    return values;
  });
}

template <typename T>
__global__ void normal_kernel(RandomKey key, double mean, double stddev, T* y, std::int64_t n, bool aligned) {
  draw(key, y, n, aligned, [=](const Draws& draws, std::int64_t) {
    Values values = normal_block(draws, [](double x) { return std::sqrt(x); });
#pragma unroll
    for (int k = 0; k < 4; ++k) values[k] = mean + stddev * values[k];
    return values;
  });
}

template <typename T>
__global__ void dropout_kernel(RandomKey key, const std::int64_t* key_at, double scale, std::uint32_t threshold,
                               const T* x, T* y, std::int64_t n, bool aligned) {
  if (key_at) key = {static_cast<std::uint64_t>(key_at[0]), static_cast<std::uint64_t>(key_at[1])};
  draw(key, y, n, aligned, [=](const Draws& draws, std::int64_t i) {
    Vector<T, 4> in{};
    if (i + 4 <= n) {
      in = load<4>(x + i, aligned);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (i + k < n) in.at[k] = x[i + k];
      }
    }
    Values values;
#pragma unroll
    for (int k = 0; k < 4; ++k) values[k] = draws[k] >> 8 < threshold ? widened(in.at[k]) * scale : 0.0;
    return values;
  });
}

class CudaRandom final : public RandomKernels {
 public:
  void run(KernelContext& ctx, const kernels::Uniform& call) override {
    launch_draw(ctx, "uniform", call.y, [&](auto zero, auto start) {
      using T = decltype(zero);
      start(uniform_kernel<T>, call.key, call.low, call.high, call.y.as<T>(), call.y.numel(), aligned(call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::Normal& call) override {
    launch_draw(ctx, "normal", call.y, [&](auto zero, auto start) {
      using T = decltype(zero);
      start(normal_kernel<T>, call.key, call.mean, call.stddev, call.y.as<T>(), call.y.numel(), aligned(call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::Dropout& call) override {
    // random_uniform(key, i) < keep, in integers.
    const auto threshold = static_cast<std::uint32_t>(std::ceil(call.keep * 0x1p24));
    launch_draw(ctx, "dropout", call.y, [&](auto zero, auto start) {
      using T = decltype(zero);
      start(dropout_kernel<T>, call.key, call.key_at ? call.key_at.as<std::int64_t>() : nullptr, 1 / call.keep,
            threshold, call.x.as<T>(), call.y.as<T>(), call.y.numel(), all_aligned(call.x.data, call.y.data));
    });
  }

 private:
  // Calls f(element, start): start(kernel, arguments...) launches a thread for every four elements of y.
  template <typename F>
  static void launch_draw(KernelContext& ctx, const char* operation, const View& y, const F& f) {
    if (y.numel() == 0) return;
    visit_floating(y.dtype, operation, [&](auto zero) {
      f(zero, [&](auto kernel, const auto&... arguments) {
        launch(kernel, blocks_for(ceil_div(y.numel(), 4)), dim3(kThreads), 0, cuda_context(ctx).stream(), arguments...);
      });
    });
  }
};

}  // namespace random_cu

std::unique_ptr<RandomKernels> make_cuda_random() { return std::make_unique<CudaRandom>(); }

}  // namespace lockstep
