#include <cmath>

#include "lockstep/backend/cuda/norm_images.cuh"
#include "lockstep/backend/cuda/norm_kernels.h"

namespace lockstep::cuda {
inline namespace norm_sums_cu {

// Large blocks, so that the last block has few partial sums to add.
constexpr int kSumThreads = 512, kSumBlocks = 264, kAhead = 4;

// to[column] = the sum of x over the block's threads of each column of a tile.
template <int kWidth, typename C>
__device__ void sum_rows(const C (&x)[kWidth], int lanes, C* to) {
  __shared__ C sums[kSumThreads / 32][32 * kWidth];
  const int thread = static_cast<int>(threadIdx.x), columns = lanes * kWidth;
  __syncthreads();  // before the next use of `sums`
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const C sum = warp_sum(x[k], lanes);
    if (thread % 32 < lanes) sums[thread / 32][thread % 32 * kWidth + k] = sum;
  }
  __syncthreads();
  if (thread < columns) {
    C total = sums[0][thread];
    for (int warp = 1; warp < kSumThreads / 32; ++warp) total += sums[warp][thread];
    to[thread] = total;
  }
}

// Computes two sums over blocks in f64 for each column of a tile. term(block, column, a, b) adds to a and b;
// finish(column, a, b) gets the totals. All threads call it; adjacent threads have adjacent columns.
template <typename Term, typename Finish>
__device__ void sum_blocks(int columns, int blocks, const Term& term, const Finish& finish) {
  __shared__ double sums[2][kSumThreads];
  const int thread = static_cast<int>(threadIdx.x), column = thread % columns, slots = kSumThreads / columns;
  double a = 0, b = 0;
  for (int block = thread / columns; block < blocks; block += slots) term(block, column, a, b);
  sums[0][thread] = a;
  sums[1][thread] = b;
  for (int half = slots / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half * columns) {
      sums[0][thread] += sums[0][thread + half * columns];
      sums[1][thread] += sums[1][thread + half * columns];
    }
  }
  if (thread < columns) finish(column, sums[0][thread], sums[1][thread]);
}

// The memory of a reduction: partial sums of all blocks and columns, and for each tile a counter of its blocks.
template <typename C>
struct Partials {
  int lanes;
  unsigned rows_per_block;
  // [quantity][block][padded channel]
  C* sums;
  unsigned* counters;

  __device__ C* at(int quantity, unsigned block, int columns) const {
    return sums +
           (std::size_t{static_cast<unsigned>(quantity)} * gridDim.x + block) * gridDim.y *
               static_cast<unsigned>(columns) +
           blockIdx.y * static_cast<unsigned>(columns);
  }
};

// Sums x - shift and its square, per block. The shift, the block's first row, is close enough to the block's mean that
// few digits cancel. The last block of a tile combines them around the first block's shift.
template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kSumThreads, 2)
    stats_kernel(Images images, Partials<C> partials, const T* x, C* mean, C* m2, bool aligned) {
  const NormPlace place(images, kWidth, partials.lanes, partials.rows_per_block);
  const int columns = partials.lanes * kWidth;
  C shift[kWidth] = {}, sum[kWidth] = {}, squares[kWidth] = {};
  if (place.channel < images.channels && images.rows > 0) {
    const unsigned first_row = place.row - static_cast<unsigned>(place.row_of_block);
    const auto first = load<kWidth>(x + images.offset<kWidth>(first_row, place.channel), aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) shift[k] = widened(first.at[k]);
    with_alignment<kWidth>(aligned, [&](auto whole) {
      for_rows<whole ? kAhead : 1>(
          place, [&](unsigned row) { return load<kWidth>(x + images.offset<kWidth>(row, place.channel), whole); },
          [&](const Vector<T, kWidth>& v, unsigned) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
              const C d = widened(v.at[k]) - shift[k];
              sum[k] += d;
              squares[k] += d * d;
            }
          });
    });
  }
  if (place.row_of_block == 0) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) partials.at(0, blockIdx.x, columns)[place.lane * kWidth + k] = shift[k];
  }
  sum_rows(sum, partials.lanes, partials.at(1, blockIdx.x, columns));
  sum_rows(squares, partials.lanes, partials.at(2, blockIdx.x, columns));
  if (!is_last_block(partials.counters + blockIdx.y, gridDim.x)) return;

  const double full = partials.rows_per_block, inverse_full = 1 / full;
  const unsigned last = gridDim.x - 1, rest = images.rows - last * partials.rows_per_block;
  sum_blocks(
      columns, static_cast<int>(gridDim.x),
      [&](int block, int column, double& a, double& b) {
        const auto at = static_cast<unsigned>(block);
        const double n = at < last ? full : rest, inverse = at < last ? inverse_full : 1 / n;
        if (n == 0) return;
        const double s = partials.at(1, at, columns)[column];
        const double d = static_cast<double>(partials.at(0, at, columns)[column]) -
                         static_cast<double>(partials.at(0, 0, columns)[column]) + s * inverse;
        a += n * d;
        b += (partials.at(2, at, columns)[column] - s * s * inverse) + n * (d * d);
      },
      [&](int column, double a, double b) {
        const unsigned c = channel_of(images, columns, column);
        if (c >= images.channels) return;
        const double n = images.rows, inverse = n > 0 ? 1 / n : 0;
        mean[c] = static_cast<C>(partials.at(0, 0, columns)[column] + a * inverse);
        m2[c] = static_cast<C>(fmax(b - a * a * inverse, 0.0));
      });
}

template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kSumThreads, 2)
    backward_stats_kernel(Images images, Partials<C> partials, const T* dy, const T* x, const T* y,
                          Channels<C> channels, C* dgamma, C* dbeta, bool aligned) {
  const NormPlace place(images, kWidth, partials.lanes, partials.rows_per_block);
  const int columns = partials.lanes * kWidth;
  C sum[kWidth] = {}, products[kWidth] = {};
  if (place.channel < images.channels) {
    const auto mean = load_channels<kWidth>(channels.mean, place.channel);
    with_alignment<kWidth>(aligned, [&](auto whole) {
      for_rows<whole ? kAhead / 2 : 1>(
          place,
          [&](unsigned row) { return Gradient<kWidth, T>(x, dy, y, images.offset<kWidth>(row, place.channel), whole); },
          [&](const Gradient<kWidth, T>& g, unsigned) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
              sum[k] += widened(g.dy.at[k]);
              products[k] += widened(g.dy.at[k]) * (widened(g.x.at[k]) - mean.at[k]);
            }
          });
    });
  }
  sum_rows(sum, partials.lanes, partials.at(0, blockIdx.x, columns));
  sum_rows(products, partials.lanes, partials.at(1, blockIdx.x, columns));
  if (!is_last_block(partials.counters + blockIdx.y, gridDim.x)) return;

  sum_blocks(
      columns, static_cast<int>(gridDim.x),
      [&](int block, int column, double& a, double& b) {
        a += partials.at(0, static_cast<unsigned>(block), columns)[column];
        b += partials.at(1, static_cast<unsigned>(block), columns)[column];
      },
      [&](int column, double a, double b) {
        const unsigned c = channel_of(images, columns, column);
        if (c >= images.channels) return;
        dbeta[c] = static_cast<C>(a);
        dgamma[c] = static_cast<C>(b / std::sqrt(channels.m2[c] * channels.inverse_n + channels.eps));
      });
}

template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kSumThreads, 2)
    channels_kernel(Images images, Partials<C> partials, const T* x, C* sums, bool aligned) {
  const NormPlace place(images, kWidth, partials.lanes, partials.rows_per_block);
  const int columns = partials.lanes * kWidth;
  C sum[kWidth] = {};
  if (place.channel < images.channels) {
    with_alignment<kWidth>(aligned, [&](auto whole) {
      for_rows<whole ? kAhead : 1>(
          place, [&](unsigned row) { return load<kWidth>(x + images.offset<kWidth>(row, place.channel), whole); },
          [&](const Vector<T, kWidth>& v, unsigned) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum[k] += widened(v.at[k]);
          });
    });
  }
  sum_rows(sum, partials.lanes, partials.at(0, blockIdx.x, columns));
  if (!is_last_block(partials.counters + blockIdx.y, gridDim.x)) return;

  sum_blocks(
      columns, static_cast<int>(gridDim.x),
      [&](int block, int column, double& a, double&) {
        a += partials.at(0, static_cast<unsigned>(block), columns)[column];
      },
      [&](int column, double a, double) {
        const unsigned c = channel_of(images, columns, column);
        if (c < images.channels) sums[c] = static_cast<C>(a);
      });
}

template <typename C>
Partials<C> partials_for(CudaContext& ctx, const NormGrid& grid, int quantities) {
  static_assert(kMostBlocksAlongY <= CudaContext::kCounters);
  const std::size_t numbers =
      static_cast<std::size_t>(quantities) * grid.blocks * static_cast<std::size_t>(grid.launched_channels());
  return {grid.lanes, grid.rows_per_block, static_cast<C*>(ctx.device_scratch(numbers * sizeof(C))), ctx.counters()};
}

}  // namespace norm_sums_cu

void batch_norm_stats(CudaContext& context, const View& x, const BatchNormStats& stats) {
  const NormGrid grid(x, kSumThreads, kSumBlocks);
  visit_images(x, grid.width, [&](auto zero, auto width) {
    using T = decltype(zero);
    using C = Compute<T>;
    grid.launches(x, [&](const Images& images, dim3 blocks) {
      launch(stats_kernel<T, width>, blocks, grid.block(), 0, context.stream(), images,
             partials_for<C>(context, grid, 3), x.as<T>(), stats.mean.as<C>(), stats.m2.as<C>(), all_aligned(x.data));
    });
  });
}

void batch_norm_backward_stats(CudaContext& context, const View& dy, const View& x, const View& y,
                               const BatchNormStats& stats, double eps, const View& dgamma, const View& dbeta) {
  const NormGrid grid(x, kSumThreads, kSumBlocks);
  visit_images(x, grid.width, [&](auto zero, auto width) {
    using T = decltype(zero);
    using C = Compute<T>;
    grid.launches(x, [&](const Images& images, dim3 blocks) {
      launch(backward_stats_kernel<T, width>, blocks, grid.block(), 0, context.stream(), images,
             partials_for<C>(context, grid, 2), dy.as<T>(), x.as<T>(), y ? y.as<T>() : nullptr, Channels<C>(stats, eps),
             dgamma.as<C>(), dbeta.as<C>(), all_aligned(dy.data, x.data, y.data));
    });
  });
}

void sum_channels(CudaContext& context, const View& x, const View& sums) {
  const NormGrid grid(x, kSumThreads, kSumBlocks);
  visit_images(x, grid.width, [&](auto zero, auto width) {
    using T = decltype(zero);
    using C = Compute<T>;
    grid.launches(x, [&](const Images& images, dim3 blocks) {
      launch(channels_kernel<T, width>, blocks, grid.block(), 0, context.stream(), images,
             partials_for<C>(context, grid, 1), x.as<T>(), sums.as<C>(), all_aligned(x.data));
    });
  });
}

}  // namespace lockstep::cuda
