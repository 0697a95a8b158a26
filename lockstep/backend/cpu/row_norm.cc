#include "lockstep/backend/cpu/row_norm.h"

#include <algorithm>
#include <cmath>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/lanes.h"

namespace lockstep::cpu {
namespace {

// Returns the number of rows per task. It depends on a row's length alone, because each task sums its part of the
// parameters' gradients, so it decides the bits. An f32 sum over more than 64 rows would lose digits.
std::int64_t rows_per_chunk(std::int64_t k) {
  return std::clamp<std::int64_t>(16384 / std::max<std::int64_t>(k, 1), 4, 64);
}

template <typename T>
void rows_forward_as(KernelContext& ctx, const View& x, const View& weight, const View& bias, double eps,
                     const View& mean, const View& rstd, const View& y) {
  using C = Computed<T>;
  const std::int64_t k = x.shape[1];
  auto* absent = static_cast<C*>(ctx.scratch.get(static_cast<std::size_t>(2 * k) * sizeof(C)));
  std::fill_n(absent, k, C(1));
  std::fill_n(absent + k, k, C(0));
  const C* w = weight ? weight.as<C>() : absent;
  const C* shift = bias ? bias.as<C>() : absent + k;
  parallel_for(ctx, x.shape[0], rows_per_chunk(k), [&](std::int64_t begin, std::int64_t end) {
    vectorized_as<T>([&] {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* u = x.as<T>() + row * k;
        C center = 0;
        if (mean) {
          const double sum = lane_sum(k, [=](std::int64_t i) { return widened(u[i]); });
          mean.as<C>()[row] = center = static_cast<C>(sum / static_cast<double>(k));
        }
        const double squares = lane_sum(k, [=](std::int64_t i) {
          const C d = widened(u[i]) - center;
          return d * d;
        });
        const auto scale = static_cast<C>(1 / std::sqrt(squares / static_cast<double>(k) + eps));
        rstd.as<C>()[row] = scale;
        vector_loop(0, k, [=, out = y.as<T>() + row * k](std::int64_t i) {
          out[i] = static_cast<T>((widened(u[i]) - center) * scale * w[i] + shift[i]);
        });
      }
    });
  });
}

template <typename T>
void rows_backward_as(KernelContext& ctx, const View& dy, const View& x, const View& mean, const View& rstd,
                      const View& weight, const View& dx, const View& dweight, const View& dbias) {
  using C = Computed<T>;
  const std::int64_t rows = x.shape[0], k = x.shape[1], grain = rows_per_chunk(k);
  const bool parameters = dweight || dbias;
  const std::int64_t chunks = parameters ? (rows + grain - 1) / grain : 0;
  auto* ones = static_cast<C*>(ctx.scratch.get(static_cast<std::size_t>((1 + 2 * chunks) * k) * sizeof(C)));
  C* sums = ones + k;  // [chunks, 2, k]: of weight and of bias
  std::fill_n(ones, k, C(1));
  const C* w = weight ? weight.as<C>() : ones;
  parallel_for(ctx, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    C* sum = sums + begin / grain * 2 * k;
    if (parameters) std::fill_n(sum, 2 * k, C(0));
    vectorized_as<T>([&] {
      for (std::int64_t row = begin; row < end; ++row) {
        const C center = mean ? mean.as<C>()[row] : 0, scale = rstd.as<C>()[row];
        const T* u = x.as<T>() + row * k;
        const T* v = dy.as<T>() + row * k;
        const auto xhat = [=](std::int64_t i) { return (widened(u[i]) - center) * scale; };
        const auto gradient = [=](std::int64_t i) { return widened(v[i]) * w[i]; };
        if (dx) {
          const double total = mean ? lane_sum(k, gradient) : 0;
          const double total_xhat = lane_sum(k, [=](std::int64_t i) { return gradient(i) * xhat(i); });
          const auto a = static_cast<C>(total / static_cast<double>(k));
          const auto b = static_cast<C>(total_xhat / static_cast<double>(k));
          vector_loop(0, k, [=, out = dx.as<T>() + row * k](std::int64_t i) {
            out[i] = static_cast<T>(scale * (gradient(i) - a - xhat(i) * b));
          });
        }
        if (parameters) {
          vector_loop(0, k, [=](std::int64_t i) {
            sum[i] += widened(v[i]) * xhat(i);
            sum[k + i] += widened(v[i]);
          });
        }
      }
    });
  });
  if (!parameters) return;
  const auto leaf = [=](std::size_t chunk) { return std::optional(sums + static_cast<std::int64_t>(chunk) * 2 * k); };
  const auto join = [=](C* a, const C* b) {
    vectorized_as<T>([=] { vector_loop(0, 2 * k, [=](std::int64_t i) { a[i] += b[i]; }); });
    return std::optional(a);
  };
  const std::optional<C*> total = tree_fold(0, static_cast<std::size_t>(chunks), leaf, join);
  const auto write = [&](const View& out, std::int64_t at) {
    if (!out) return;
    total ? std::copy_n(*total + at, k, out.as<C>()) : std::fill_n(out.as<C>(), k, C(0));
  };
  write(dweight, 0);
  write(dbias, k);
}

}  // namespace

void rows_forward(KernelContext& ctx, const View& x, const View& weight, const View& bias, double eps, const View& mean,
                  const View& rstd, const View& y) {
  visit_floating(x.dtype, "norm",
                 [&](auto zero) { rows_forward_as<decltype(zero)>(ctx, x, weight, bias, eps, mean, rstd, y); });
}

void rows_backward(KernelContext& ctx, const View& dy, const View& x, const View& mean, const View& rstd,
                   const View& weight, const View& dx, const View& dweight, const View& dbias) {
  visit_floating(x.dtype, "norm", [&](auto zero) {
    rows_backward_as<decltype(zero)>(ctx, dy, x, mean, rstd, weight, dx, dweight, dbias);
  });
}

}  // namespace lockstep::cpu
