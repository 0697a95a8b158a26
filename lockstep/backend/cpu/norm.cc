#include "lockstep/backend/norm.h"

#include <array>
#include <cmath>
#include <limits>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/native_bf16.h"
#include "lockstep/backend/cpu/norm_panels.h"
#include "lockstep/backend/cpu/row_norm.h"
#include "lockstep/base/tree.h"

namespace lockstep {
namespace {

using cpu::Computed;
using cpu::kColumns;
using cpu::NormPanels;
using cpu::Panel;

constexpr std::int64_t kUnitsPerChunk = 4;

// One value per column of a panel. Loops over all columns become a few vector instructions, and the compiler keeps such
// arrays in registers as long as loops over rows index them by constants.
template <typename C>
using Columns = std::array<C, kColumns>;

template <typename C>
Columns<C> expand(const C* channels, std::int64_t width) {
  Columns<C> out;
  for (std::int64_t j = 0; j < kColumns; ++j) out[j] = channels[j & (width - 1)];
  return out;
}

// Sums the columns of each of the `width` channels.
template <typename C>
void fold(const Columns<C>& columns, std::int64_t width, C* channels) {
  Columns<C> sum = columns;
  for (std::int64_t half = kColumns / 2; half >= width; half /= 2) {
    for (std::int64_t j = 0; j < half; ++j) sum[j] += sum[j + half];
  }
  std::copy_n(sum.begin(), width, channels);
}

// Calls f(first element) for every row of a panel.
template <typename F>
void for_rows(const Panel& p, const F& f) {
  for (std::int64_t row = p.offset; row < p.offset + p.rows * p.stride; row += p.stride) f(row);
}

// Calls body(element i, column j) for every element of a panel, with the common full width as a constant.
template <typename Body>
void for_columns(const Panel& p, const Body& body) {
  if (p.columns == kColumns) {
    for_rows(p, [&](std::int64_t row) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < kColumns; ++j) body(row + j, j);
    });
  } else {
    for_rows(p, [&](std::int64_t row) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < p.columns; ++j) body(row + j, j);
    });
  }
}

// Like for_columns(), for y[i] = value(i, j); value() may read y[i].
template <typename T, typename Native, typename Value>
void write_columns(const Panel& p, T* y, Native native, const Value& value) {
  if (p.columns < kColumns) {
    return for_columns(p, [&](std::int64_t i, std::int64_t j) { y[i] = static_cast<T>(value(i, j)); });
  }
  for_rows(p, [&](std::int64_t row) {
    Columns<Computed<T>> values;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < kColumns; ++j) values[j] = value(row + j, j);
    cpu::store_row<kColumns>(values.data(), y + row, native);
  });
}

// Calls f(block, group, native) for every unit of `panels`, compiled for this machine; see vectorized_for.
template <typename Written, typename F>
void for_units(const KernelContext& ctx, const NormPanels& panels, const F& f) {
  parallel_for(ctx, panels.units(), kUnitsPerChunk, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized_for<Written>([&](auto native) {
      for (std::int64_t u = begin; u < end; ++u) f(u / panels.groups(), u % panels.groups(), native);
    });
  });
}

// Arrays in the lane's scratch memory, each with one element per (padded) channel.
template <typename C>
class ChannelArrays {
 public:
  ChannelArrays(KernelContext& ctx, const NormPanels& panels, std::int64_t count)
      : channels_(panels.padded_channels()),
        data_(static_cast<C*>(ctx.scratch.get(static_cast<std::size_t>(count * channels_) * sizeof(C)))) {}
  C* operator[](std::int64_t i) const { return data_ + i * channels_; }

 private:
  std::int64_t channels_;
  C* data_;
};

template <typename C>
double inverse_std(const BatchNormStats& stats, double eps, std::int64_t c) {
  return 1 / std::sqrt(static_cast<double>(stats.m2.as<C>()[c]) / static_cast<double>(stats.n) + eps);
}

// Returns dy[i], or 0 where a fused ReLU with output y blocked it.
template <bool kRelu, typename T>
T gradient(const T* dy, const T* y, std::int64_t i) {
  const T g = dy[i];
  return !kRelu || y[i] > 0 ? g : T(0);
}
// Selects without conversion: y > 0 if y's bits lie between 1 (the smallest positive value) and infinity's.
template <bool kRelu, typename T>
requires is_half<T> T gradient(const T* dy, const T* y, std::int64_t i) {
  constexpr std::uint16_t kInfinity = T(std::numeric_limits<float>::infinity()).bits;
  T g = dy[i];
  if (kRelu) g.bits = static_cast<std::uint16_t>(y[i].bits - 1) < kInfinity ? g.bits : std::uint16_t{0};
  return g;
}

// Copies member by member, because the compiler does not vectorize copies of a structure.
template <typename T>
void assign(T& to, T from) {
  if constexpr (is_half<T>) {
    to.bits = from.bits;
  } else {
    to = from;
  }
}

template <typename T>
void stats_kernel(KernelContext& ctx, const View& view, const BatchNormStats& stats) {
  using C = Computed<T>;
  const NormPanels panels(view);
  const std::int64_t width = panels.width(), channels = view.shape[1];
  // Sums of x - shift and of its square, per block. The shift, the mean of the block's first row, is so close to the
  // block's mean that few digits cancel: with 256 rows, the sum of squares is at most 257 times that around the mean.
  enum { kShift, kSum, kSquares, kArrays };
  const ChannelArrays<C> partial(ctx, panels, panels.blocks() * kArrays);
  const T* x = view.as<T>();
  for_units<C>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto) {
    const std::int64_t base = group * width;
    C* shift_out = partial[block * kArrays + kShift] + base;
    Columns<C> shift{}, sum{}, squares{};
    bool first = true;
    panels.for_each(block, group, [&](const Panel& p) {
      if (first) {
        first = false;
        Columns<C> row{};
        for (std::int64_t j = 0; j < p.columns; ++j) row[j] = static_cast<C>(x[p.offset + j]);
        fold(row, width, shift_out);
        const auto pixels = static_cast<C>(std::max<std::int64_t>(p.columns / width, 1));
        for (std::int64_t c = 0; c < width; ++c) shift_out[c] /= pixels;
        shift = expand(shift_out, width);
      }
      for_columns(p, [&](std::int64_t i, std::int64_t j) {
        const C d = static_cast<C>(x[i]) - shift[j];
        sum[j] += d;
        squares[j] += d * d;
      });
    });
    fold(sum, width, partial[block * kArrays + kSum] + base);
    fold(squares, width, partial[block * kArrays + kSquares] + base);
  });

  C* mean_out = stats.mean.as<C>();
  C* m2_out = stats.m2.as<C>();
  parallel_for(ctx, channels, kColumns, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized_as<T>([&] {
      // mean = sum n_b mean_b / n, then M2 = sum M2_b + n_b (mean_b - mean)^2, block after block.
      std::array<double, kColumns> mean{}, m2{};
      for (std::int64_t b = 0; b < panels.blocks(); ++b) {
        const auto n = static_cast<double>(panels.samples(b));
        const C* shift = partial[b * kArrays + kShift] + begin;
        const C* sum = partial[b * kArrays + kSum] + begin;
        for (std::int64_t j = 0; j < end - begin; ++j) mean[j] += n * shift[j] + sum[j];
      }
      for (double& m : mean) m /= static_cast<double>(std::max<std::int64_t>(panels.samples(), 1));
      for (std::int64_t b = 0; b < panels.blocks(); ++b) {
        const auto n = static_cast<double>(panels.samples(b));
        const double inverse = 1 / n;
        const C* shift = partial[b * kArrays + kShift] + begin;
        const C* sum = partial[b * kArrays + kSum] + begin;
        const C* squares = partial[b * kArrays + kSquares] + begin;
        for (std::int64_t j = 0; j < end - begin; ++j) {
          const double s = sum[j], d = shift[j] + s * inverse - mean[j];
          m2[j] += (squares[j] - s * s * inverse) + n * (d * d);
        }
      }
      for (std::int64_t j = 0; j < end - begin; ++j) {
        mean_out[begin + j] = static_cast<C>(mean[j]);
        m2_out[begin + j] = static_cast<C>(m2[j]);
      }
    });
  });
}

template <typename T, bool kResidual, bool kRelu>
void forward_kernel(KernelContext& ctx, const View& x_view, const BatchNormStats& stats, double eps, const View& gamma,
                    const View& beta, const View& residual, const View& y_view) {
  using C = Computed<T>;
  const NormPanels panels(x_view);
  const std::int64_t width = panels.width();
  enum { kMean, kScale, kShift, kArrays };
  const ChannelArrays<C> arrays(ctx, panels, kArrays);
  for (std::int64_t c = 0; c < x_view.shape[1]; ++c) {
    arrays[kMean][c] = stats.mean.as<C>()[c];
    arrays[kScale][c] = static_cast<C>(gamma.as<C>()[c] * inverse_std<C>(stats, eps, c));
    arrays[kShift][c] = beta.as<C>()[c];
  }
  const T* x = x_view.as<T>();
  const T* z = kResidual ? residual.as<T>() : nullptr;
  T* y = y_view.as<T>();
  for_units<T>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto native) {
    const Columns<C> mean = expand(arrays[kMean] + group * width, width);
    const Columns<C> scale = expand(arrays[kScale] + group * width, width);
    const Columns<C> shift = expand(arrays[kShift] + group * width, width);
    panels.for_each(block, group, [&](const Panel& p) {
      write_columns(p, y, native, [&](std::int64_t i, std::int64_t j) {
        C v = (static_cast<C>(x[i]) - mean[j]) * scale[j] + shift[j];
        if (kResidual) v += static_cast<C>(z[i]);
        return kRelu && v < 0 ? C(0) : v;  // NaN stays NaN
      });
    });
  });
}

template <typename T, bool kRelu>
void backward_stats_kernel(KernelContext& ctx, const View& dy_view, const View& x_view, const View& y_view,
                           const BatchNormStats& stats, double eps, const View& dgamma, const View& dbeta) {
  using C = Computed<T>;
  const NormPanels panels(x_view);
  const std::int64_t width = panels.width(), channels = x_view.shape[1];
  enum { kSum, kProducts, kArrays };
  const ChannelArrays<C> arrays(ctx, panels, panels.blocks() * kArrays + 1);
  C* means = arrays[panels.blocks() * kArrays];
  std::copy_n(stats.mean.as<C>(), channels, means);
  const T* dy = dy_view.as<T>();
  const T* x = x_view.as<T>();
  const T* y = kRelu ? y_view.as<T>() : nullptr;
  for_units<C>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto) {
    const std::int64_t base = group * width;
    const Columns<C> mean = expand(means + base, width);
    Columns<C> sum{}, products{};
    panels.for_each(block, group, [&](const Panel& p) {
      for_columns(p, [&](std::int64_t i, std::int64_t j) {
        const auto g = static_cast<C>(gradient<kRelu>(dy, y, i));
        sum[j] += g;
        products[j] += g * (static_cast<C>(x[i]) - mean[j]);
      });
    });
    fold(sum, width, arrays[block * kArrays + kSum] + base);
    fold(products, width, arrays[block * kArrays + kProducts] + base);
  });
  C* dbeta_out = dbeta.as<C>();
  C* dgamma_out = dgamma.as<C>();
  parallel_for(ctx, channels, kColumns, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized_as<T>([&] {
      std::array<double, kColumns> sum{}, products{};
      for (std::int64_t b = 0; b < panels.blocks(); ++b) {
        const C* s = arrays[b * kArrays + kSum] + begin;
        const C* p = arrays[b * kArrays + kProducts] + begin;
        for (std::int64_t j = 0; j < end - begin; ++j) {
          sum[j] += s[j];
          products[j] += p[j];
        }
      }
      for (std::int64_t j = 0; j < end - begin; ++j) {
        dbeta_out[begin + j] = static_cast<C>(sum[j]);
        dgamma_out[begin + j] = static_cast<C>(products[j] * inverse_std<C>(stats, eps, begin + j));
      }
    });
  });
}

template <typename T, bool kRelu, bool kResidual>
void backward_data_kernel(KernelContext& ctx, const View& dy_view, const View& x_view, const View& y_view,
                          const BatchNormStats& stats, double eps, const View& gamma, const View& sum_g,
                          const View& sum_g_xhat, const View& dx_view, const View& dresidual) {
  using C = Computed<T>;
  const NormPanels panels(x_view);
  const std::int64_t width = panels.width();
  // dx = scale * (g - offset - (x - mean) * slope)
  enum { kMean, kScale, kOffset, kSlope, kArrays };
  const ChannelArrays<C> arrays(ctx, panels, kArrays);
  const auto n = static_cast<double>(stats.n);
  for (std::int64_t c = 0; c < x_view.shape[1]; ++c) {
    const double inverse = inverse_std<C>(stats, eps, c);
    arrays[kMean][c] = stats.mean.as<C>()[c];
    arrays[kScale][c] = static_cast<C>(gamma.as<C>()[c] * inverse);
    arrays[kOffset][c] = static_cast<C>(sum_g.as<C>()[c] / n);
    arrays[kSlope][c] = static_cast<C>(sum_g_xhat.as<C>()[c] / n * inverse);
  }
  const T* dy = dy_view.as<T>();
  const T* x = x_view.as<T>();
  const T* y = kRelu ? y_view.as<T>() : nullptr;
  T* dx = dx_view.as<T>();
  T* dz = kResidual ? dresidual.as<T>() : nullptr;
  for_units<T>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto native) {
    const std::int64_t base = group * width;
    const Columns<C> mean = expand(arrays[kMean] + base, width), scale = expand(arrays[kScale] + base, width);
    const Columns<C> shift = expand(arrays[kOffset] + base, width), slope = expand(arrays[kSlope] + base, width);
    panels.for_each(block, group, [&](const Panel& p) {
      write_columns(p, dx, native, [&](std::int64_t i, std::int64_t j) {
        const T g = gradient<kRelu>(dy, y, i);
        if (kResidual) assign(dz[i], g);
        return (static_cast<C>(g) - shift[j] - (static_cast<C>(x[i]) - mean[j]) * slope[j]) * scale[j];
      });
    });
  });
}

// The bits are those that norm.h specifies.
template <typename C>
void merge_stats(const kernels::MergeNormStats& call) {
  struct Moments {
    std::int64_t n = 0;
    C mean = 0, m2 = 0;
  };
  for (std::int64_t c = 0; c < call.merged.mean.numel(); ++c) {
    const auto leaf = [&](std::size_t i) {
      const BatchNormStats& part = call.parts[i];
      return part.n == 0 ? std::nullopt : std::optional(Moments{part.n, part.mean.as<C>()[c], part.m2.as<C>()[c]});
    };
    const auto join = [](const Moments& a, const Moments& b) {
      const std::int64_t n = a.n + b.n;
      const double share = static_cast<double>(b.n) / static_cast<double>(n), d = double{b.mean} - double{a.mean};
      const double m2 = double{a.m2} + double{b.m2} + d * d * static_cast<double>(a.n) * share;
      return std::optional(Moments{n, static_cast<C>(a.mean + d * share), static_cast<C>(m2)});
    };
    const Moments all = tree_fold(0, call.parts.size(), leaf, join).value_or(Moments{});
    call.merged.mean.as<C>()[c] = all.mean;
    call.merged.m2.as<C>()[c] = all.m2;
  }
}

template <typename C>
void commit_stats(const kernels::CommitNormStats& call) {
  ++*call.batches.as<std::int64_t>();
  const std::int64_t n = call.stats.n;
  if (n == 0) return;
  const double momentum = call.momentum < 0 ? 1 / static_cast<double>(*call.batches.as<std::int64_t>()) : call.momentum;
  const auto move_to = [&](C& running, double value) {
    running = static_cast<C>(running + momentum * (value - running));
  };
  for (std::int64_t c = 0; c < call.running_mean.numel(); ++c) {
    move_to(call.running_mean.as<C>()[c], call.stats.mean.as<C>()[c]);
    if (n > 1) move_to(call.running_var.as<C>()[c], call.stats.m2.as<C>()[c] / static_cast<double>(n - 1));
  }
}

// Calls visitor with an element of a floating dtype and the constants for two flags.
template <typename Visitor>
void visit(DType dtype, bool a, bool b, const Visitor& visitor) {
  using Yes = std::true_type;
  using No = std::false_type;
  cpu::visit_floating(dtype, "norm", [&](auto zero) {
    if (a) {
      b ? visitor(zero, Yes{}, Yes{}) : visitor(zero, Yes{}, No{});
    } else {
      b ? visitor(zero, No{}, Yes{}) : visitor(zero, No{}, No{});
    }
  });
}

class CpuNorm final : public NormKernels {
 public:
  void run(KernelContext& ctx, const kernels::NormStats& call) override {
    cpu::visit_floating(call.x.dtype, "norm",
                        [&](auto zero) { stats_kernel<decltype(zero)>(ctx, call.x, call.stats); });
  }

  void run(KernelContext&, const kernels::MergeNormStats& call) override {
    call.merged.mean.dtype == DType::f64 ? merge_stats<double>(call) : merge_stats<float>(call);
  }

  void run(KernelContext& ctx, const kernels::Norm& call) override {
    visit(call.x.dtype, static_cast<bool>(call.residual), call.relu,
          [&](auto zero, auto with_residual, auto with_relu) {
            using T = decltype(zero);
            forward_kernel<T, with_residual, with_relu>(ctx, call.x, call.stats, call.eps, call.gamma, call.beta,
                                                        call.residual, call.y);
          });
  }

  void run(KernelContext& ctx, const kernels::NormBackwardStats& call) override {
    visit(call.x.dtype, static_cast<bool>(call.y), false, [&](auto zero, auto with_relu, auto) {
      backward_stats_kernel<decltype(zero), with_relu>(ctx, call.dy, call.x, call.y, call.stats, call.eps, call.dgamma,
                                                       call.dbeta);
    });
  }

  void run(KernelContext& ctx, const kernels::NormBackwardData& call) override {
    visit(call.x.dtype, static_cast<bool>(call.y), static_cast<bool>(call.dresidual),
          [&](auto zero, auto with_relu, auto with_residual) {
            using T = decltype(zero);
            backward_data_kernel<T, with_relu, with_residual>(ctx, call.dy, call.x, call.y, call.stats, call.eps,
                                                              call.gamma, call.sum_g, call.sum_g_xhat, call.dx,
                                                              call.dresidual);
          });
  }

  void run(KernelContext&, const kernels::CommitNormStats& call) override {
    call.running_mean.dtype == DType::f64 ? commit_stats<double>(call) : commit_stats<float>(call);
  }

  void run(KernelContext& ctx, const kernels::NormRows& call) override {
    cpu::rows_forward(ctx, call.x, call.weight, call.bias, call.eps, call.mean, call.rstd, call.y);
  }

  void run(KernelContext& ctx, const kernels::NormRowsBackward& call) override {
    cpu::rows_backward(ctx, call.dy, call.x, call.mean, call.rstd, call.weight, call.dx, call.dweight, call.dbias);
  }
};

}  // namespace

std::unique_ptr<NormKernels> make_cpu_norm() { return std::make_unique<CpuNorm>(); }

}  // namespace lockstep
