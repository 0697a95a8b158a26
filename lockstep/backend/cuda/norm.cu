#include "lockstep/backend/norm.h"

#include <cmath>
#include <vector>

#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/norm_images.cuh"

namespace lockstep {
namespace {

using namespace cuda;

// Sums over rows: large blocks, so that the last one has few partial sums to add. Elsewhere more and smaller ones.
constexpr int kSumThreads = 512, kSumBlocks = 264;
constexpr int kMapBlocks = 1056;
constexpr int kAhead = 4;

template <typename C>
__device__ C inverse_std(C m2, double inverse_n, double eps) {
  return 1 / std::sqrt(m2 * static_cast<C>(inverse_n) + static_cast<C>(eps));
}

// The sum over the rows of a block of what the threads of a column hold, for the columns of a tile: to[column].
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

// Two sums over blocks in f64 for each column of a tile. term(block, column, a, b) adds to a and b; finish(column, a, b)
// gets the totals. All threads call it; neighbouring threads have neighbouring columns.
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

// A block's share of a reduction: partial sums of all columns, and the counter of blocks of its tile.
template <typename C>
struct Partials {
  int lanes;
  unsigned rows_per_block;
  // [quantity][block][padded channel]
  C* sums;
  unsigned* counters;

  __device__ C* at(int quantity, unsigned block, int columns) const {
    return sums + (std::size_t{static_cast<unsigned>(quantity)} * gridDim.x + block) * gridDim.y *
                      static_cast<unsigned>(columns) +
           blockIdx.y * static_cast<unsigned>(columns);
  }
};

// Sums of x - shift and of its square, per block. The shift, the block's first row, lies near enough to the block's mean
// that few digits cancel. The last block of a tile puts them together around the first block's shift.
template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kSumThreads) stats_kernel(Images images, Partials<C> partials, const T* x, C* mean,
                                                            C* m2, bool aligned) {
  const NormPlace place(images, kWidth, partials.lanes, partials.rows_per_block);
  const int columns = partials.lanes * kWidth;
  C shift[kWidth] = {}, sum[kWidth] = {}, squares[kWidth] = {};
  if (place.channel < images.channels && images.rows > 0) {
    const auto first =
        load<kWidth>(x + images.offset(place.row - static_cast<unsigned>(place.row_of_block), place.channel), aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) shift[k] = widened(first.at[k]);
    for_rows<kAhead>(
        place, [&](unsigned row) { return load<kWidth>(x + images.offset(row, place.channel), aligned); },
        [&](const Vector<T, kWidth>& v, unsigned) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            const C d = widened(v.at[k]) - shift[k];
            sum[k] += d;
            squares[k] += d * d;
          }
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
        const unsigned c = blockIdx.y * static_cast<unsigned>(columns) + static_cast<unsigned>(column);
        if (c >= images.channels) return;
        const double n = images.rows, inverse = n > 0 ? 1 / n : 0;
        mean[c] = static_cast<C>(partials.at(0, 0, columns)[column] + a * inverse);
        m2[c] = static_cast<C>(fmax(b - a * a * inverse, 0.0));
      });
}

// What the elements of a channel have in common.
template <typename C>
struct Channels {
  const C *mean, *m2;
  double inverse_n, eps;

  explicit Channels(const BatchNormStats& stats, double epsilon)
      : mean(stats.mean.as<C>()), m2(stats.m2.as<C>()), inverse_n(1 / static_cast<double>(stats.n)), eps(epsilon) {}
};

template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kThreads) forward_kernel(Images images, int lanes, unsigned rows_per_block, const T* x,
                                                           Channels<C> channels, const C* gamma, const C* beta,
                                                           const T* residual, bool relu, T* y, bool aligned) {
  const NormPlace place(images, kWidth, lanes, rows_per_block);
  if (place.channel >= images.channels) return;
  const auto mean = load_channels<kWidth>(channels.mean, place.channel);
  const auto shift = load_channels<kWidth>(beta, place.channel);
  auto scale = load_channels<kWidth>(gamma, place.channel);
  const auto m2 = load_channels<kWidth>(channels.m2, place.channel);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) scale.at[k] *= inverse_std(m2.at[k], channels.inverse_n, channels.eps);
  struct Loaded {
    Vector<T, kWidth> x, residual;
  };
  for_rows<kAhead>(
      place,
      [&](unsigned row) {
        const std::int64_t at = images.offset(row, place.channel);
        Loaded loaded{};
        loaded.x = load<kWidth>(x + at, aligned);
        if (residual) loaded.residual = load<kWidth>(residual + at, aligned);
        return loaded;
      },
      [&](const Loaded& loaded, unsigned row) {
        Vector<T, kWidth> out;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          C v = (widened(loaded.x.at[k]) - mean.at[k]) * scale.at[k] + shift.at[k];
          if (residual) v += widened(loaded.residual.at[k]);
          out.at[k] = convert<T>(relu && v < 0 ? C(0) : v);  // NaN stays NaN
        }
        store(y + images.offset(row, place.channel), out, aligned);
      });
}

// dy, or its part that passes a fused ReLU whose output was y.
template <int kWidth, typename T>
struct Gradient {
  Vector<T, kWidth> x, dy, y;

  Gradient() = default;
  __device__ Gradient(const T* x_from, const T* dy_from, const T* y_from, std::int64_t at, bool aligned) {
    x = load<kWidth>(x_from + at, aligned);
    dy = load<kWidth>(dy_from + at, aligned);
    if (!y_from) return;
    y = load<kWidth>(y_from + at, aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (!(widened(y.at[k]) > 0)) dy.at[k] = convert<T>(0.f);
    }
  }
};

template <typename T, int kWidth, typename C = Compute<T>>
__global__ void __launch_bounds__(kSumThreads)
    backward_stats_kernel(Images images, Partials<C> partials, const T* dy, const T* x, const T* y, Channels<C> channels,
                          C* dgamma, C* dbeta, bool aligned) {
  const NormPlace place(images, kWidth, partials.lanes, partials.rows_per_block);
  const int columns = partials.lanes * kWidth;
  C sum[kWidth] = {}, products[kWidth] = {};
  if (place.channel < images.channels) {
    const auto mean = load_channels<kWidth>(channels.mean, place.channel);
    for_rows<kAhead / 2>(
        place,
        [&](unsigned row) {
          return Gradient<kWidth, T>(x, dy, y, images.offset(row, place.channel), aligned);
        },
        [&](const Gradient<kWidth, T>& g, unsigned) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            sum[k] += widened(g.dy.at[k]);
            products[k] += widened(g.dy.at[k]) * (widened(g.x.at[k]) - mean.at[k]);
          }
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
        const unsigned c = blockIdx.y * static_cast<unsigned>(columns) + static_cast<unsigned>(column);
        if (c >= images.channels) return;
        dbeta[c] = static_cast<C>(a);
        dgamma[c] = static_cast<C>(b / std::sqrt(channels.m2[c] * channels.inverse_n + channels.eps));
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
  for_rows<kAhead / 2>(
      place,
      [&](unsigned row) { return Gradient<kWidth, T>(x, dy, y, images.offset(row, place.channel), aligned); },
      [&](const Gradient<kWidth, T>& g, unsigned row) {
        const std::int64_t at = images.offset(row, place.channel);
        Vector<T, kWidth> out;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          out.at[k] = convert<T>((widened(g.dy.at[k]) - offset.at[k] - (widened(g.x.at[k]) - mean.at[k]) * slope.at[k]) *
                                 scale.at[k]);
        }
        if (dresidual) store(dresidual + at, g.dy, aligned);
        store(dx + at, out, aligned);
      });
}

constexpr int kMostParts = 128, kPartsDepth = 7;

// Statistics of up to kMostParts shards; n = 0 is a missing one.
template <typename C>
struct Parts {
  int count;
  std::int64_t n[kMostParts];
  const C *mean[kMostParts], *m2[kMostParts];
};

template <typename C>
__global__ void merge_stats_kernel(const __grid_constant__ Parts<C> parts, unsigned channels, C* mean, C* m2) {
  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  struct Moments {
    std::int64_t n;
    double mean, m2;
  };
  // To the bit as norm.h says.
  const Moments all = fold_tree<kPartsDepth>(
      parts.count,
      [&](int i) {
        return parts.n[i] == 0 ? Moments{} : Moments{parts.n[i], double{parts.mean[i][c]}, double{parts.m2[i][c]}};
      },
      [](const Moments& a, const Moments& b) {
        if (a.n == 0) return b;
        if (b.n == 0) return a;
        const std::int64_t n = a.n + b.n;
        const double part = static_cast<double>(b.n) / static_cast<double>(n), d = b.mean - a.mean;
        return Moments{n, static_cast<C>(a.mean + d * part),
                       static_cast<C>(a.m2 + b.m2 + d * d * static_cast<double>(a.n) * part)};
      });
  mean[c] = static_cast<C>(all.mean);
  m2[c] = static_cast<C>(all.m2);
}

template <typename C>
__global__ void commit_kernel(const C* mean, const C* m2, double momentum, double unbiased, C* running_mean,
                              C* running_var, std::int64_t* batches, unsigned channels) {
  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c == 0) ++*batches;
  if (c >= channels) return;
  auto move_to = [&](C& running, double value) {
    running = static_cast<C>(running + momentum * (value - running));
  };
  move_to(running_mean[c], mean[c]);
  if (unbiased > 0) move_to(running_var[c], m2[c] / unbiased);
}

// Calls visitor(element, vector width) for x's dtype and how it is walked over.
template <typename Visitor>
void visit_images(const View& x, int width, const Visitor& visitor) {
  visit_floating(x.dtype, "batch_norm", [&](auto zero) {
    using T = decltype(zero);
    width == 1 ? visitor(zero, std::integral_constant<int, 1>{})
               : visitor(zero, std::integral_constant<int, kVector<T>>{});
  });
}

template <typename C>
Partials<C> partials_for(CudaContext& ctx, const NormGrid& grid, int quantities) {
  check(static_cast<std::size_t>(grid.tiles) <= CudaContext::kCounters, "batch_norm: {} channels are too many",
        grid.padded_channels());
  const std::size_t numbers =
      static_cast<std::size_t>(quantities) * grid.blocks * static_cast<std::size_t>(grid.padded_channels());
  return {grid.lanes, grid.rows_per_block, static_cast<C*>(ctx.device_scratch(numbers * sizeof(C))), ctx.counters()};
}

class CudaNorm final : public NormKernels {
 public:
  void stats(KernelContext& context, const View& x, const BatchNormStats& stats) override {
    CudaContext& ctx = cuda_context(context);
    const NormGrid grid(x, kSumThreads, kSumBlocks);
    visit_images(x, grid.width, [&](auto zero, auto width) {
      using T = decltype(zero);
      using C = Compute<T>;
      launch(stats_kernel<T, width>, grid.grid(), grid.block(), 0, ctx.stream(), Images(x),
             partials_for<C>(ctx, grid, 3), x.as<T>(), stats.mean.as<C>(), stats.m2.as<C>(), all_aligned(x.data));
    });
  }

  void merge_stats(KernelContext& context, std::span<const BatchNormStats> parts, const BatchNormStats& out) override {
    visit_floating(out.mean.dtype, "merge_stats", [&](auto zero) {
      merge_stats_as<Compute<decltype(zero)>>(cuda_context(context), parts, out);
    });
  }

  void forward(KernelContext& context, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
               const View& beta, const View& residual, bool relu, const View& y) override {
    if (x.numel() == 0) return;
    const NormGrid grid(x, kThreads, kMapBlocks);
    visit_images(x, grid.width, [&](auto zero, auto width) {
      using T = decltype(zero);
      using C = Compute<T>;
      launch(forward_kernel<T, width>, grid.grid(), grid.block(), 0, cuda_context(context).stream(), Images(x), grid.lanes,
             grid.rows_per_block, x.as<T>(), Channels<C>(stats, eps), gamma.as<C>(), beta.as<C>(),
             residual ? residual.as<T>() : nullptr, relu, y.as<T>(), all_aligned(x.data, residual.data, y.data));
    });
  }

  void backward_stats(KernelContext& context, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                      double eps, const View& dgamma, const View& dbeta) override {
    CudaContext& ctx = cuda_context(context);
    const NormGrid grid(x, kSumThreads, kSumBlocks);
    visit_images(x, grid.width, [&](auto zero, auto width) {
      using T = decltype(zero);
      using C = Compute<T>;
      launch(backward_stats_kernel<T, width>, grid.grid(), grid.block(), 0, ctx.stream(), Images(x),
             partials_for<C>(ctx, grid, 2), dy.as<T>(), x.as<T>(), y ? y.as<T>() : nullptr, Channels<C>(stats, eps),
             dgamma.as<C>(), dbeta.as<C>(), all_aligned(dy.data, x.data, y.data));
    });
  }

  void backward_data(KernelContext& context, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                     double eps, const View& gamma, const View& sum_g, const View& sum_g_xhat, const View& dx,
                     const View& dresidual) override {
    if (x.numel() == 0) return;
    const NormGrid grid(x, kThreads, kMapBlocks);
    visit_images(x, grid.width, [&](auto zero, auto width) {
      using T = decltype(zero);
      using C = Compute<T>;
      launch(backward_data_kernel<T, width>, grid.grid(), grid.block(), 0, cuda_context(context).stream(), Images(x),
             grid.lanes, grid.rows_per_block, dy.as<T>(), x.as<T>(), y ? y.as<T>() : nullptr, Channels<C>(stats, eps),
             gamma.as<C>(), sum_g.as<C>(), sum_g_xhat.as<C>(), dx.as<T>(), dresidual ? dresidual.as<T>() : nullptr,
             all_aligned(dy.data, x.data, y.data, dx.data, dresidual.data));
    });
  }

  void commit(KernelContext& context, const BatchNormStats& stats, double momentum, const View& running_mean,
              const View& running_var, const View& batches) override {
    if (stats.n == 0) return;
    visit_floating(running_mean.dtype, "commit", [&](auto zero) {
      using C = Compute<decltype(zero)>;
      const auto channels = static_cast<unsigned>(running_mean.numel());
      launch(commit_kernel<C>, blocks_for(channels), dim3(kThreads), 0, cuda_context(context).stream(),
             stats.mean.as<C>(), stats.m2.as<C>(), momentum, static_cast<double>(stats.n - 1), running_mean.as<C>(),
             running_var.as<C>(), batches.as<std::int64_t>(), channels);
    });
  }

 private:
  // Of more parts than one launch takes: complete subtrees first.
  template <typename C>
  static void merge_stats_as(CudaContext& ctx, std::span<const BatchNormStats> parts, const BatchNormStats& out) {
    const std::int64_t channels = out.mean.numel();
    if (channels == 0) return;
    std::vector<BatchNormStats> merged;
    if (parts.size() > kMostParts) {
      const std::size_t chunks = ceil_div(parts.size(), std::size_t{kMostParts});
      auto* next = static_cast<C*>(ctx.device_scratch(2 * chunks * static_cast<std::size_t>(channels) * sizeof(C)));
      for (std::size_t k = 0; k < chunks; ++k) {
        const auto chunk = parts.subspan(k * kMostParts, std::min<std::size_t>(kMostParts, parts.size() - k * kMostParts));
        BatchNormStats of_chunk{0, out.mean, out.m2};
        for (const BatchNormStats& part : chunk) of_chunk.n += part.n;
        of_chunk.mean.data = next;
        of_chunk.m2.data = next + channels;
        next += 2 * channels;
        launch_merge<C>(ctx, chunk, of_chunk);
        merged.push_back(of_chunk);
      }
      check(chunks <= kMostParts, "merge_stats: {} parts are too many", parts.size());
      parts = merged;
    }
    launch_merge<C>(ctx, parts, out);
  }

  template <typename C>
  static void launch_merge(CudaContext& ctx, std::span<const BatchNormStats> parts, const BatchNormStats& out) {
    Parts<C> arguments{};
    arguments.count = static_cast<int>(std::max<std::size_t>(parts.size(), 1));  // one that is missing, if there is none
    for (std::size_t i = 0; i < parts.size(); ++i) {
      arguments.n[i] = parts[i].n;
      if (parts[i].n == 0) continue;
      arguments.mean[i] = parts[i].mean.as<C>();
      arguments.m2[i] = parts[i].m2.as<C>();
    }
    const auto channels = static_cast<unsigned>(out.mean.numel());
    launch(merge_stats_kernel<C>, blocks_for(channels), dim3(kThreads), 0, ctx.stream(), arguments, channels,
           out.mean.as<C>(), out.m2.as<C>());
  }
};

}  // namespace

std::unique_ptr<NormKernels> make_cuda_norm() { return std::make_unique<CudaNorm>(); }

}  // namespace lockstep
