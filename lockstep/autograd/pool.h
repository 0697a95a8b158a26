// Pooling. Images are [N, C, H, W], sequences [N, C, L]. nn/pooling.h has the layers.
//
//   Tensor y = max_pool2d(x, 3, 2, 1);  // kernel size, stride, padding; or {.kernel_size = 3, .stride = 2, ...}
#pragma once

#include <array>
#include <concepts>
#include <cstdint>

#include "lockstep/autograd/conv.h"
#include "lockstep/autograd/reduce.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/backend/window.h"

namespace LOCKSTEP_API lockstep {

// The largest element, or the mean, of each window: [N, C, H, W] -> [N, C, H', W'], H' = floor((H + 2 padding - kernel)
// / stride) + 1, with ceil_mode rounded up. Inputs without a batch, [C, H, W] and [C, L], have results without one.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options = {});
// Also returns the place h W + w of each largest element in its image, i64 without a history: PyTorch's
// return_indices = True. The first of equal elements counts.
MaxResult max_pool2d_with_indices(const Tensor& x, const Pool2dOptions& options = {});
// Puts each element of x [N, C, H', W'] at its place in images of the given extents, which are 0 elsewhere. If several
// elements have one place, as with overlapping windows, the last one wins, and it alone gets a gradient.
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, std::array<std::int64_t, 2> output_size);
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options = {});
// The norm of each window, (sum of x^norm_type)^(1 / norm_type), as in PyTorch: norm_type is above 0, the padding 0.
// The sum of a window partly outside the image (ceil_mode) is scaled up to a full window. The gradient at norm 0 is 0.
Tensor lp_pool2d(const Tensor& x, double norm_type, const Pool2dOptions& options = {});
// The same for sequences: [N, C, L] -> [N, C, L'].
Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options = {});
Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options = {});
// [N, C, H, W] -> [N, C, 1, 1]
Tensor global_avg_pool2d(const Tensor& x);
// Means over windows that cover the image: [N, C, H, W] -> [N, C, output_size]. Output row i of n averages input rows
// [floor(i H / n), ceil((i + 1) H / n)). An output size of -1 keeps the input's.
Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> output_size);
// The largest elements of the same windows.
Tensor adaptive_max_pool2d(const Tensor& x, std::array<std::int64_t, 2> output_size);
// The same for sequences: [N, C, L] -> [N, C, output_size].
Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output_size);
Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t output_size);

using Pool3dOptions = PoolNdOptions<DepthHeightWidth>;
// The same for volumes, [N, C, D, H, W] or [C, D, H, W]: images first, then depth.
Tensor max_pool3d(const Tensor& x, const Pool3dOptions& options = {});
Tensor avg_pool3d(const Tensor& x, const Pool3dOptions& options = {});
Tensor adaptive_avg_pool3d(const Tensor& x, std::array<std::int64_t, 3> output_size);
Tensor adaptive_max_pool3d(const Tensor& x, std::array<std::int64_t, 3> output_size);

// Options from the kernel's size, the stride, which defaults to the kernel's size, and the padding. It is a template,
// so that braces mean options.
template <typename Extents, std::convertible_to<Extents> Kernel, std::convertible_to<Extents>... More>
requires(sizeof...(More) <= 2) PoolNdOptions<Extents> pool_options(const Kernel& kernel_size, const More&... more) {
  return {kernel_size, more...};
}
template <std::convertible_to<HeightWidth>... N>
requires(sizeof...(N) > 0) Tensor max_pool2d(const Tensor& x, const N&... window) {
  return max_pool2d(x, pool_options<HeightWidth>(window...));
}
template <std::convertible_to<HeightWidth>... N>
requires(sizeof...(N) > 0) Tensor avg_pool2d(const Tensor& x, const N&... window) {
  return avg_pool2d(x, pool_options<HeightWidth>(window...));
}
template <std::convertible_to<std::int64_t>... N>
requires(sizeof...(N) > 0) Tensor max_pool1d(const Tensor& x, const N&... window) {
  return max_pool1d(x, pool_options<std::int64_t>(window...));
}
template <std::convertible_to<std::int64_t>... N>
requires(sizeof...(N) > 0) Tensor avg_pool1d(const Tensor& x, const N&... window) {
  return avg_pool1d(x, pool_options<std::int64_t>(window...));
}
template <std::convertible_to<DepthHeightWidth>... N>
requires(sizeof...(N) > 0) Tensor max_pool3d(const Tensor& x, const N&... window) {
  return max_pool3d(x, pool_options<DepthHeightWidth>(window...));
}
template <std::convertible_to<DepthHeightWidth>... N>
requires(sizeof...(N) > 0) Tensor avg_pool3d(const Tensor& x, const N&... window) {
  return avg_pool3d(x, pool_options<DepthHeightWidth>(window...));
}

}  // namespace lockstep
