#include "lockstep/backend/cuda/bias.h"

#include <limits>

#include "lockstep/backend/cuda/element.cuh"

namespace lockstep {
inline namespace bias_cu {

using namespace cuda;

// How consecutive vectors of y in memory cycle through the channels: each channel has `run` consecutive vectors (H * W
// in plain layout, one in channels-last), and after `channels` channels the cycle begins again.
template <typename Index>
struct Channels {
  Index vectors, run, channels;
};

// One thread per vector. kAlong: a vector's elements belong to adjacent channels instead of one.
template <typename T, int kWidth, bool kAlong, typename Index>
__global__ void add_bias_kernel(T* y, const Compute<T>* bias, Channels<Index> e, bool aligned) {
  using C = Compute<T>;
  const std::int64_t i = thread_number();
  if (i >= static_cast<std::int64_t>(e.vectors)) return;
  const Index channel = static_cast<Index>(i) / e.run % e.channels;
  const C* from = bias + std::int64_t{channel} * (kAlong ? kWidth : 1);
  auto v = load<kWidth>(y + i * kWidth, aligned);
  Vector<C, kWidth> sums;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sums.at[k] = widened(v.at[k]) + from[kAlong ? k : 0];
  store(y + i * kWidth, narrowed<T>(sums), aligned);
}

template <typename T, int kWidth, bool kAlong>
void launch_add_bias(CudaContext& context, const View& y, const View& bias, std::int64_t run, std::int64_t channels) {
  const std::int64_t vectors = y.numel() / kWidth;
  auto start = [&](auto index) {
    using Index = decltype(index);
    const Channels<Index> e{static_cast<Index>(vectors), static_cast<Index>(run), static_cast<Index>(channels)};
    launch(add_bias_kernel<T, kWidth, kAlong, Index>, blocks_for(vectors), dim3(kThreads), 0, context.stream(),
           y.as<T>(), bias.as<Compute<T>>(), e, aligned(y.data));
  };
  // 64-bit division would cost more than the rest of the kernel.
  vectors <= std::numeric_limits<unsigned>::max() ? start(0U) : start(std::int64_t{});
}

}  // namespace bias_cu

void add_bias(CudaContext& context, const View& y, const View& bias) {
  if (y.numel() == 0) return;
  const Shape& s = y.shape;
  const std::int64_t channels = s[1], pixels = s.dim() == 2 ? 1 : s[2] * s[3];
  const bool along = s.dim() == 2 || y.layout == Layout::channels_last;
  visit_floating(y.dtype, "add_bias", [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = kVector<T>;
    if (along && channels % kWidth == 0) {
      launch_add_bias<T, kWidth, true>(context, y, bias, 1, channels / kWidth);
    } else if (!along && pixels % kWidth == 0) {
      launch_add_bias<T, kWidth, false>(context, y, bias, pixels / kWidth, channels);
    } else {
      launch_add_bias<T, 1, false>(context, y, bias, along ? 1 : pixels, channels);
    }
  });
}

}  // namespace lockstep
