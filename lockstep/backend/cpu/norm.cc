#include "lockstep/backend/norm.h"

#include <array>
#include <cmath>
#include <limits>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/native_bf16.h"
#include "lockstep/backend/cpu/norm_panels.h"
#include "lockstep/backend/cpu/row_norm.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

using cpu::kColumns;
using cpu::NormPanels;
using cpu::Panel;

constexpr std::int64_t kUnitsPerChunk = 4;

// One number per column of a panel. Loops over all columns become a few vector instructions, and the compiler keeps
// such arrays in registers as long as loops over rows index them by constants.
using Columns = std::array<float, kColumns>;

Columns expand(const float* channels, std::int64_t width) {
  Columns out;
  for (std::int64_t j = 0; j < kColumns; ++j) out[j] = channels[j & (width - 1)];
  return out;
}

// Sums the columns of each of the `width` channels.
void fold(const Columns& columns, std::int64_t width, float* channels) {
  Columns sum = columns;
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

// The same for y[i] = value(i, j); value may read y[i].
template <typename T, typename Native, typename Value>
void write_columns(const Panel& p, T* y, Native native, const Value& value) {
  if (p.columns < kColumns) {
    return for_columns(p, [&](std::int64_t i, std::int64_t j) { y[i] = static_cast<T>(value(i, j)); });
  }
  for_rows(p, [&](std::int64_t row) {
    Columns values;
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

// Arrays of floats in the lane's scratch memory, each with one number per (padded) channel.
class ChannelArrays {
 public:
  ChannelArrays(KernelContext& ctx, const NormPanels& panels, std::int64_t count)
      : channels_(panels.padded_channels()),
        data_(static_cast<float*>(ctx.scratch.get(static_cast<std::size_t>(count * channels_) * sizeof(float)))) {}
  float* operator[](std::int64_t i) const { return data_ + i * channels_; }

 private:
  std::int64_t channels_;
  float* data_;
};

double inverse_std(const BatchNormStats& stats, double eps, std::int64_t c) {
  return 1 / std::sqrt(static_cast<double>(stats.m2.as<float>()[c]) / static_cast<double>(stats.n) + eps);
}

// dy, or 0 where a fused ReLU with output y blocked it.
template <bool kRelu>
float gradient(const float* dy, const float* y, std::int64_t i) {
  const float g = dy[i];
  return !kRelu || y[i] > 0 ? g : 0.f;
}
// Selects before any conversion: 0 < y if y's bits are between 1 (the smallest number) and infinity's.
template <bool kRelu, typename T>
requires is_half<T> T gradient(const T* dy, const T* y, std::int64_t i) {
  constexpr std::uint16_t kInfinity = T(std::numeric_limits<float>::infinity()).bits;
  T g = dy[i];
  if (kRelu) g.bits = static_cast<std::uint16_t>(y[i].bits - 1) < kInfinity ? g.bits : std::uint16_t{0};
  return g;
}

// Member by member, because the compiler does not vectorize copies of a structure.
void assign(float& to, float from) { to = from; }
template <typename T>
requires is_half<T>
void assign(T& to, T from) { to.bits = from.bits; }

template <typename T>
void stats_kernel(KernelContext& ctx, const View& view, const BatchNormStats& stats) {
  const NormPanels panels(view);
  const std::int64_t width = panels.width(), channels = view.shape[1];
  // Sums of x - shift and of its square, per block. The shift, the mean of the block's first row, is so close to the
  // block's mean that no digits cancel: the sum of squares is at most 1 + 256 times the sum around the mean itself.
  enum { kShift, kSum, kSquares, kArrays };
  const ChannelArrays partial(ctx, panels, panels.blocks() * kArrays);
  const T* x = view.as<T>();
  for_units<float>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto) {
    const std::int64_t base = group * width;
    float* shift_out = partial[block * kArrays + kShift] + base;
    Columns shift{}, sum{}, squares{};
    bool first = true;
    panels.for_each(block, group, [&](const Panel& p) {
      if (first) {
        first = false;
        Columns row{};
        for (std::int64_t j = 0; j < p.columns; ++j) row[j] = static_cast<float>(x[p.offset + j]);
        fold(row, width, shift_out);
        const auto pixels = static_cast<float>(std::max<std::int64_t>(p.columns / width, 1));
        for (std::int64_t c = 0; c < width; ++c) shift_out[c] /= pixels;
        shift = expand(shift_out, width);
      }
      for_columns(p, [&](std::int64_t i, std::int64_t j) {
        const float d = static_cast<float>(x[i]) - shift[j];
        sum[j] += d;
        squares[j] += d * d;
      });
    });
    fold(sum, width, partial[block * kArrays + kSum] + base);
    fold(squares, width, partial[block * kArrays + kSquares] + base);
  });

  float* mean_out = stats.mean.as<float>();
  float* m2_out = stats.m2.as<float>();
  parallel_for(ctx, channels, kColumns, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] {
      // mean = sum n_b mean_b / n, then M2 = sum M2_b + n_b (mean_b - mean)^2, block after block.
      std::array<double, kColumns> mean{}, m2{};
      for (std::int64_t b = 0; b < panels.blocks(); ++b) {
        const auto n = static_cast<double>(panels.samples(b));
        const float* shift = partial[b * kArrays + kShift] + begin;
        const float* sum = partial[b * kArrays + kSum] + begin;
        for (std::int64_t j = 0; j < end - begin; ++j) mean[j] += n * shift[j] + sum[j];
      }
      for (double& m : mean) m /= static_cast<double>(std::max<std::int64_t>(panels.samples(), 1));
      for (std::int64_t b = 0; b < panels.blocks(); ++b) {
        const auto n = static_cast<double>(panels.samples(b));
        const double inverse = 1 / n;
        const float* shift = partial[b * kArrays + kShift] + begin;
        const float* sum = partial[b * kArrays + kSum] + begin;
        const float* squares = partial[b * kArrays + kSquares] + begin;
        for (std::int64_t j = 0; j < end - begin; ++j) {
          const double s = sum[j], d = shift[j] + s * inverse - mean[j];
          m2[j] += (squares[j] - s * s * inverse) + n * (d * d);
        }
      }
      for (std::int64_t j = 0; j < end - begin; ++j) {
        mean_out[begin + j] = static_cast<float>(mean[j]);
        m2_out[begin + j] = static_cast<float>(m2[j]);
      }
    });
  });
}

template <typename T, bool kResidual, bool kRelu>
void forward_kernel(KernelContext& ctx, const View& x_view, const BatchNormStats& stats, double eps, const View& gamma,
                    const View& beta, const View& residual, const View& y_view) {
  const NormPanels panels(x_view);
  const std::int64_t width = panels.width();
  enum { kMean, kScale, kShift, kArrays };
  const ChannelArrays arrays(ctx, panels, kArrays);
  for (std::int64_t c = 0; c < x_view.shape[1]; ++c) {
    arrays[kMean][c] = stats.mean.as<float>()[c];
    arrays[kScale][c] = static_cast<float>(gamma.as<float>()[c] * inverse_std(stats, eps, c));
    arrays[kShift][c] = beta.as<float>()[c];
  }
  const T* x = x_view.as<T>();
  const T* z = kResidual ? residual.as<T>() : nullptr;
  T* y = y_view.as<T>();
  for_units<T>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto native) {
    const Columns mean = expand(arrays[kMean] + group * width, width);
    const Columns scale = expand(arrays[kScale] + group * width, width);
    const Columns shift = expand(arrays[kShift] + group * width, width);
    panels.for_each(block, group, [&](const Panel& p) {
      write_columns(p, y, native, [&](std::int64_t i, std::int64_t j) {
        float v = (static_cast<float>(x[i]) - mean[j]) * scale[j] + shift[j];
        if (kResidual) v += static_cast<float>(z[i]);
        return kRelu && v < 0 ? 0.f : v;  // NaN stays NaN
      });
    });
  });
}

template <typename T, bool kRelu>
void backward_stats_kernel(KernelContext& ctx, const View& dy_view, const View& x_view, const View& y_view,
                           const BatchNormStats& stats, double eps, const View& dgamma, const View& dbeta) {
  const NormPanels panels(x_view);
  const std::int64_t width = panels.width(), channels = x_view.shape[1];
  enum { kSum, kProducts, kArrays };
  const ChannelArrays arrays(ctx, panels, panels.blocks() * kArrays + 1);
  float* means = arrays[panels.blocks() * kArrays];
  std::copy_n(stats.mean.as<float>(), channels, means);
  const T* dy = dy_view.as<T>();
  const T* x = x_view.as<T>();
  const T* y = kRelu ? y_view.as<T>() : nullptr;
  for_units<float>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto) {
    const std::int64_t base = group * width;
    const Columns mean = expand(means + base, width);
    Columns sum{}, products{};
    panels.for_each(block, group, [&](const Panel& p) {
      for_columns(p, [&](std::int64_t i, std::int64_t j) {
        const auto g = static_cast<float>(gradient<kRelu>(dy, y, i));
        sum[j] += g;
        products[j] += g * (static_cast<float>(x[i]) - mean[j]);
      });
    });
    fold(sum, width, arrays[block * kArrays + kSum] + base);
    fold(products, width, arrays[block * kArrays + kProducts] + base);
  });
  float* dbeta_out = dbeta.as<float>();
  float* dgamma_out = dgamma.as<float>();
  parallel_for(ctx, channels, kColumns, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] {
      std::array<double, kColumns> sum{}, products{};
      for (std::int64_t b = 0; b < panels.blocks(); ++b) {
        const float* s = arrays[b * kArrays + kSum] + begin;
        const float* p = arrays[b * kArrays + kProducts] + begin;
        for (std::int64_t j = 0; j < end - begin; ++j) {
          sum[j] += s[j];
          products[j] += p[j];
        }
      }
      for (std::int64_t j = 0; j < end - begin; ++j) {
        dbeta_out[begin + j] = static_cast<float>(sum[j]);
        dgamma_out[begin + j] = static_cast<float>(products[j] * inverse_std(stats, eps, begin + j));
      }
    });
  });
}

template <typename T, bool kRelu, bool kResidual>
void backward_data_kernel(KernelContext& ctx, const View& dy_view, const View& x_view, const View& y_view,
                          const BatchNormStats& stats, double eps, const View& gamma, const View& sum_g,
                          const View& sum_g_xhat, const View& dx_view, const View& dresidual) {
  const NormPanels panels(x_view);
  const std::int64_t width = panels.width();
  // dx = scale * (g - offset - (x - mean) * slope)
  enum { kMean, kScale, kOffset, kSlope, kArrays };
  const ChannelArrays arrays(ctx, panels, kArrays);
  const auto n = static_cast<double>(stats.n);
  for (std::int64_t c = 0; c < x_view.shape[1]; ++c) {
    const double inverse = inverse_std(stats, eps, c);
    arrays[kMean][c] = stats.mean.as<float>()[c];
    arrays[kScale][c] = static_cast<float>(gamma.as<float>()[c] * inverse);
    arrays[kOffset][c] = static_cast<float>(sum_g.as<float>()[c] / n);
    arrays[kSlope][c] = static_cast<float>(sum_g_xhat.as<float>()[c] / n * inverse);
  }
  const T* dy = dy_view.as<T>();
  const T* x = x_view.as<T>();
  const T* y = kRelu ? y_view.as<T>() : nullptr;
  T* dx = dx_view.as<T>();
  T* dz = kResidual ? dresidual.as<T>() : nullptr;
  for_units<T>(ctx, panels, [&](std::int64_t block, std::int64_t group, auto native) {
    const std::int64_t base = group * width;
    const Columns mean = expand(arrays[kMean] + base, width), scale = expand(arrays[kScale] + base, width);
    const Columns shift = expand(arrays[kOffset] + base, width), slope = expand(arrays[kSlope] + base, width);
    panels.for_each(block, group, [&](const Panel& p) {
      write_columns(p, dx, native, [&](std::int64_t i, std::int64_t j) {
        const T g = gradient<kRelu>(dy, y, i);
        if (kResidual) assign(dz[i], g);
        return (static_cast<float>(g) - shift[j] - (static_cast<float>(x[i]) - mean[j]) * slope[j]) * scale[j];
      });
    });
  });
}

// Calls visitor with an element of a narrow dtype and the constants for two flags.
template <typename Visitor>
void visit(DType dtype, bool a, bool b, const Visitor& visitor) {
  using Yes = std::true_type;
  using No = std::false_type;
  cpu::visit_narrow(dtype, [&](auto zero) {
    if (a) {
      b ? visitor(zero, Yes{}, Yes{}) : visitor(zero, Yes{}, No{});
    } else {
      b ? visitor(zero, No{}, Yes{}) : visitor(zero, No{}, No{});
    }
  });
}

// Computes f32 and bf16. The reference loops compute f64, and the few numbers of merge_stats and commit, whose bits are
// part of the kernels' contract.
class CpuNorm final : public NormKernels {
 public:
  void stats(KernelContext& ctx, const View& x, const BatchNormStats& stats) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->stats(ctx, x, stats);
    cpu::visit_narrow(x.dtype, [&](auto zero) { stats_kernel<decltype(zero)>(ctx, x, stats); });
  }

  void merge_stats(KernelContext& ctx, std::span<const BatchNormStats> parts, const BatchNormStats& out) override {
    reference_->merge_stats(ctx, parts, out);
  }

  void forward(KernelContext& ctx, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
               const View& beta, const View& residual, bool relu, const View& y) override {
    if (!cpu::is_narrow(x.dtype)) {
      return reference_->forward(ctx, x, stats, eps, gamma, beta, residual, relu, y);
    }
    visit(x.dtype, static_cast<bool>(residual), relu, [&](auto zero, auto with_residual, auto with_relu) {
      using T = decltype(zero);
      forward_kernel<T, with_residual, with_relu>(ctx, x, stats, eps, gamma, beta, residual, y);
    });
  }

  void backward_stats(KernelContext& ctx, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                      double eps, const View& dgamma, const View& dbeta) override {
    if (!cpu::is_narrow(x.dtype)) {
      return reference_->backward_stats(ctx, dy, x, y, stats, eps, dgamma, dbeta);
    }
    visit(x.dtype, static_cast<bool>(y), false, [&](auto zero, auto with_relu, auto) {
      backward_stats_kernel<decltype(zero), with_relu>(ctx, dy, x, y, stats, eps, dgamma, dbeta);
    });
  }

  void backward_data(KernelContext& ctx, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                     double eps, const View& gamma, const View& sum_g, const View& sum_g_xhat, const View& dx,
                     const View& dresidual) override {
    if (!cpu::is_narrow(x.dtype)) {
      return reference_->backward_data(ctx, dy, x, y, stats, eps, gamma, sum_g, sum_g_xhat, dx, dresidual);
    }
    visit(x.dtype, static_cast<bool>(y), static_cast<bool>(dresidual),
          [&](auto zero, auto with_relu, auto with_residual) {
            using T = decltype(zero);
            backward_data_kernel<T, with_relu, with_residual>(ctx, dy, x, y, stats, eps, gamma, sum_g, sum_g_xhat, dx,
                                                              dresidual);
          });
  }

  void commit(KernelContext& ctx, const BatchNormStats& stats, double momentum, const View& running_mean,
              const View& running_var, const View& batches) override {
    reference_->commit(ctx, stats, momentum, running_mean, running_var, batches);
  }

  void rows_forward(KernelContext& ctx, const View& x, const View& weight, const View& bias, double eps,
                    const View& mean, const View& rstd, const View& y) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->rows_forward(ctx, x, weight, bias, eps, mean, rstd, y);
    cpu::rows_forward(ctx, x, weight, bias, eps, mean, rstd, y);
  }

  void rows_backward(KernelContext& ctx, const View& dy, const View& x, const View& mean, const View& rstd,
                     const View& weight, const View& dx, const View& dweight, const View& dbias) override {
    if (!cpu::is_narrow(x.dtype)) {
      return reference_->rows_backward(ctx, dy, x, mean, rstd, weight, dx, dweight, dbias);
    }
    cpu::rows_backward(ctx, dy, x, mean, rstd, weight, dx, dweight, dbias);
  }

 private:
  std::unique_ptr<NormKernels> reference_ = reference::make_norm();
};

}  // namespace

std::unique_ptr<NormKernels> make_cpu_norm() { return std::make_unique<CpuNorm>(); }

}  // namespace lockstep
