#include "lockstep/backend/cuda/norm_images.cuh"
#include "lockstep/backend/cuda/norm_kernels.h"

namespace lockstep::cuda {
inline namespace norm_maps_cu {

constexpr int kMapBlocks = 1056, kAhead = 4;

template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Images images, int lanes, unsigned rows_per_block, const T* x, Channels<C> channels, const C* gamma,
                   const C* beta, const T* residual, bool relu, T* y, bool aligned) {
  const NormPlace place(images, kWidth, lanes, rows_per_block);
  if (place.channel >= images.channels) return;
  const auto mean = load_channels<kWidth>(channels.mean, place.channel);
  const auto shift = load_channels<kWidth>(beta, place.channel);
  auto scale = load_channels<kWidth>(gamma, place.channel);
  const auto m2 = load_channels<kWidth>(channels.m2, place.channel);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) scale.at[k] *= inverse_std(m2.at[k], channels.inverse_n, channels.eps);
  struct Loaded {
    Vector<T, kWidth> x{}, residual{};
  };
  with_alignment<kWidth>(aligned, [&](auto whole) {
    for_rows<whole ? kAhead : 1>(
        place,
        [&](unsigned row) {
          const std::int64_t at = images.offset<kWidth>(row, place.channel);
          Loaded loaded;
          loaded.x = load<kWidth>(x + at, whole);
          if (residual) loaded.residual = load<kWidth>(residual + at, whole);
          return loaded;
        },
        [&](const Loaded& loaded, unsigned row) {
          Vector<C, kWidth> out;
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            C v = (widened(loaded.x.at[k]) - mean.at[k]) * scale.at[k] + shift.at[k];
            if (residual) v += widened(loaded.residual.at[k]);
            out.at[k] = relu && v < 0 ? C(0) : v;  // NaN stays NaN
          }
          store(y + images.offset<kWidth>(row, place.channel), narrowed<T>(out), whole);
        });
  });
}

template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    backward_data_kernel(Images images, int lanes, unsigned rows_per_block, const T* dy, const T* x, const T* y,
                         Channels<C> channels, const C* gamma, const C* sum_g, const C* sum_g_xhat, T* dx, T* dresidual,
                         bool aligned) {
  const NormPlace place(images, kWidth, lanes, rows_per_block);
  if (place.channel >= images.channels) return;
  // dx = scale * (g - offset - (x - mean) * slope)
  const auto mean = load_channels<kWidth>(channels.mean, place.channel);
  const auto m2 = load_channels<kWidth>(channels.m2, place.channel);
  auto scale = load_channels<kWidth>(gamma, place.channel);
  auto offset = load_channels<kWidth>(sum_g, place.channel);
  auto slope = load_channels<kWidth>(sum_g_xhat, place.channel);
  const C inverse_n = static_cast<C>(channels.inverse_n);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const C inverse = inverse_std(m2.at[k], channels.inverse_n, channels.eps);
    scale.at[k] *= inverse;
    offset.at[k] *= inverse_n;
    slope.at[k] *= inverse_n * inverse;
  }
  with_alignment<kWidth>(aligned, [&](auto whole) {
    for_rows<whole ? kAhead / 2 : 1>(
        place,
        [&](unsigned row) { return Gradient<kWidth, T>(x, dy, y, images.offset<kWidth>(row, place.channel), whole); },
        [&](const Gradient<kWidth, T>& g, unsigned row) {
          const std::int64_t at = images.offset<kWidth>(row, place.channel);
          Vector<C, kWidth> out;
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            const C from_mean = widened(g.x.at[k]) - mean.at[k];
            out.at[k] = (widened(g.dy.at[k]) - offset.at[k] - from_mean * slope.at[k]) * scale.at[k];
          }
          if (dresidual) store(dresidual + at, g.dy, whole);
          store(dx + at, narrowed<T>(out), whole);
        });
  });
}

}  // namespace norm_maps_cu

void batch_norm_forward(CudaContext& context, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
                        const View& beta, const View& residual, bool relu, const View& y) {
  if (x.numel() == 0) return;
  const NormGrid grid(x, kThreads, kMapBlocks);
  visit_images(x, grid.width, [&](auto zero, auto width) {
    using T = decltype(zero);
    using C = Compute<T>;
    grid.launches(x, [&](const Images& images, dim3 blocks) {
      launch(forward_kernel<T, width>, blocks, grid.block(), 0, context.stream(), images, grid.lanes,
             grid.rows_per_block, x.as<T>(), Channels<C>(stats, eps), gamma.as<C>(), beta.as<C>(),
             residual ? residual.as<T>() : nullptr, relu, y.as<T>(), all_aligned(x.data, residual.data, y.data));
    });
  });
}

void batch_norm_backward_data(CudaContext& context, const View& dy, const View& x, const View& y,
                              const BatchNormStats& stats, double eps, const View& gamma, const View& sum_g,
                              const View& sum_g_xhat, const View& dx, const View& dresidual) {
  if (x.numel() == 0) return;
  const NormGrid grid(x, kThreads, kMapBlocks);
  visit_images(x, grid.width, [&](auto zero, auto width) {
    using T = decltype(zero);
    using C = Compute<T>;
    grid.launches(x, [&](const Images& images, dim3 blocks) {
      launch(backward_data_kernel<T, width>, blocks, grid.block(), 0, context.stream(), images, grid.lanes,
             grid.rows_per_block, dy.as<T>(), x.as<T>(), y ? y.as<T>() : nullptr, Channels<C>(stats, eps),
             gamma.as<C>(), sum_g.as<C>(), sum_g_xhat.as<C>(), dx.as<T>(), dresidual ? dresidual.as<T>() : nullptr,
             all_aligned(dy.data, x.data, y.data, dx.data, dresidual.data));
    });
  });
}

}  // namespace lockstep::cuda
