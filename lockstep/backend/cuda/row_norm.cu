#include <cmath>

#include "lockstep/backend/cuda/norm_kernels.h"
#include "lockstep/backend/cuda/rows.cuh"

namespace lockstep::cuda {
inline namespace row_norm_cu {

template <typename T, int kGroup>
__global__ void rows_forward_kernel(const T* x, const Compute<T>* weight, const Compute<T>* bias, double eps,
                                    Compute<T>* mean, Compute<T>* rstd, T* y, std::int64_t rows, std::int64_t k) {
  using C = Compute<T>;
  const Group<kGroup> group;
  if (group.row >= rows) return;
  x += group.row * k;
  y += group.row * k;
  C center = 0, squares = 0;
  if (mean) {
    group.for_each(k, [&](std::int64_t i) { center += widened(x[i]); });
    center = group.sum(center) / static_cast<C>(k);
  }
  group.for_each(k, [&](std::int64_t i) {
    const C d = widened(x[i]) - center;
    squares += d * d;
  });
  squares = group.sum(squares);
  const C scale = static_cast<C>(1 / std::sqrt(static_cast<double>(squares) / static_cast<double>(k) + eps));
  if (group.thread == 0) {
    if (mean) mean[group.row] = center;
    rstd[group.row] = scale;
  }
  group.for_each(k, [&](std::int64_t i) {
    const C w = weight ? weight[i] : C(1), shift = bias ? bias[i] : C(0);
    y[i] = convert<T>((widened(x[i]) - center) * scale * w + shift);
  });
}

template <typename T, int kGroup>
__global__ void rows_backward_kernel(const T* dy, const T* x, const Compute<T>* mean, const Compute<T>* rstd,
                                     const Compute<T>* weight, T* dx, std::int64_t rows, std::int64_t k) {
  using C = Compute<T>;
  const Group<kGroup> group;
  if (group.row >= rows) return;
  dy += group.row * k;
  x += group.row * k;
  dx += group.row * k;
  const C center = mean ? mean[group.row] : C(0), scale = rstd[group.row];
  auto xhat = [&](std::int64_t i) { return (widened(x[i]) - center) * scale; };
  auto gradient = [&](std::int64_t i) { return widened(dy[i]) * (weight ? weight[i] : C(1)); };
  C sum = 0, sum_xhat = 0;
  group.for_each(k, [&](std::int64_t i) {
    sum += gradient(i);
    sum_xhat += gradient(i) * xhat(i);
  });
  const C a = mean ? group.sum(sum) / static_cast<C>(k) : C(0), b = group.sum(sum_xhat) / static_cast<C>(k);
  group.for_each(k, [&](std::int64_t i) { dx[i] = convert<T>(scale * (gradient(i) - a - xhat(i) * b)); });
}

// sums [chunks, 2, k] are those of weight and bias over `per_chunk` rows. A thread sums a column of a chunk.
template <typename T>
__global__ void parameter_sums_kernel(const T* dy, const T* x, const Compute<T>* mean, const Compute<T>* rstd,
                                      Compute<T>* sums, std::int64_t rows, std::int64_t k, std::int64_t per_chunk) {
  using C = Compute<T>;
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= k) return;
  const std::int64_t begin = blockIdx.y * per_chunk, end = std::min(begin + per_chunk, rows);
  C dweight = 0, dbias = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const C g = widened(dy[row * k + i]);
    dweight += g * ((widened(x[row * k + i]) - (mean ? mean[row] : C(0))) * rstd[row]);
    dbias += g;
  }
  sums += std::int64_t{blockIdx.y} * 2 * k + i;
  sums[0] = dweight;
  sums[k] = dbias;
}

constexpr int kChunksDepth = 9, kMostChunks = 1 << kChunksDepth;

template <typename C>
__global__ void fold_parameter_sums_kernel(const C* sums, int chunks, std::int64_t k, C* dweight, C* dbias) {
  const std::int64_t i = thread_number();
  if (i >= k) return;
  auto total = [&](std::int64_t at) {
    if (chunks == 0) return C(0);
    return fold_tree<kChunksDepth>(
        chunks, [&](int chunk) { return sums[chunk * 2 * k + at]; }, [](C a, C b) { return a + b; });
  };
  if (dweight) dweight[i] = total(i);
  if (dbias) dbias[i] = total(k + i);
}

template <typename C>
C* data_of(const View& view) {
  return view ? view.as<C>() : nullptr;
}

}  // namespace row_norm_cu

void rows_forward(CudaContext& context, const View& x, const View& weight, const View& bias, double eps,
                  const View& mean, const View& rstd, const View& y) {
  const std::int64_t rows = x.shape[0], k = x.shape[1];
  if (rows == 0) return;
  visit_rows(x.dtype, "layer_norm", rows, k, [&](auto zero, auto group, dim3 grid) {
    using T = decltype(zero);
    using C = Compute<T>;
    launch(rows_forward_kernel<T, group>, grid, dim3(kThreads), 0, context.stream(), x.as<T>(), data_of<C>(weight),
           data_of<C>(bias), eps, data_of<C>(mean), rstd.as<C>(), y.as<T>(), rows, k);
  });
}

void rows_backward(CudaContext& context, const View& dy, const View& x, const View& mean, const View& rstd,
                   const View& weight, const View& dx, const View& dweight, const View& dbias) {
  const std::int64_t rows = x.shape[0], k = x.shape[1];
  if (dx && rows > 0) {
    visit_rows(x.dtype, "layer_norm", rows, k, [&](auto zero, auto group, dim3 grid) {
      using T = decltype(zero);
      using C = Compute<T>;
      launch(rows_backward_kernel<T, group>, grid, dim3(kThreads), 0, context.stream(), dy.as<T>(), x.as<T>(),
             data_of<C>(mean), rstd.as<C>(), data_of<C>(weight), dx.as<T>(), rows, k);
    });
  }
  if ((!dweight && !dbias) || k == 0) return;
  const std::int64_t per_chunk = std::max<std::int64_t>(32, ceil_div(rows, kMostChunks));
  const std::int64_t chunks = ceil_div(rows, per_chunk);
  visit_floating(x.dtype, "layer_norm", [&](auto zero) {
    using T = decltype(zero);
    using C = Compute<T>;
    auto* sums = static_cast<C*>(
        context.device_scratch(static_cast<std::size_t>(std::max<std::int64_t>(chunks, 1) * 2 * k) * sizeof(C)));
    if (chunks > 0) {
      const dim3 grid(static_cast<unsigned>(ceil_div(k, kThreads)), static_cast<unsigned>(chunks));
      launch(parameter_sums_kernel<T>, grid, dim3(kThreads), 0, context.stream(), dy.as<T>(), x.as<T>(),
             data_of<C>(mean), rstd.as<C>(), sums, rows, k, per_chunk);
    }
    launch(fold_parameter_sums_kernel<C>, blocks_for(k), dim3(kThreads), 0, context.stream(), sums,
           static_cast<int>(chunks), k, data_of<C>(dweight), data_of<C>(dbias));
  });
}

}  // namespace lockstep::cuda
