// Normalizes every sample by itself, composed of reductions, so batches need no exchange.
#include "lockstep/autograd/functions.h"

namespace lockstep {
namespace {

// The last axes, whose extents must be `normalized_shape`.
Dims last_axes(std::string_view what, const Tensor& x, const Shape& normalized_shape) {
  const int count = normalized_shape.rank(), rank = x.shape().rank();
  bool fits = x.defined() && count > 0 && count <= rank;
  for (int i = 1; fits && i <= count; ++i) fits = x.size(-i) == normalized_shape[-i];
  check(fits, "{}: input is {}, expected {} as its last axes", what, x, normalized_shape);
  std::vector<int> axes;
  for (int i = count; i > 0; --i) axes.push_back(-i);
  return axes;
}

Tensor scaled(Tensor y, const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

// Half types are normalized in f32.
template <typename F>
Tensor normalized(const Tensor& x, const F& f) {
  return is_half_dtype(x.dtype()) ? cast(f(cast(x, DType::f32)), x.dtype()) : f(x);
}

Tensor standardized(const Tensor& x, const Dims& dims, double eps) {
  const Tensor difference = x - mean(x, dims, true);
  return difference * rsqrt(mean(square(difference), dims, true) + eps);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const Dims dims = last_axes("layer_norm", x, normalized_shape);
  return normalized(x, [&](const Tensor& x) { return scaled(standardized(x, dims, eps), weight, bias); });
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, double eps) {
  const Dims dims = last_axes("rms_norm", x, normalized_shape);
  return normalized(x,
                    [&](const Tensor& x) { return scaled(x * rsqrt(mean(square(x), dims, true) + eps), weight, {}); });
}

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  check(x.defined() && x.shape().rank() >= 2, "group_norm: input is {}, expected 2 axes (N, C) or more", x);
  check(num_groups > 0 && x.size(1) % num_groups == 0, "group_norm: {} groups for {} channels", num_groups, x.size(1));
  Shape channels(std::vector<std::int64_t>(static_cast<std::size_t>(x.shape().rank()) - 1, 1));
  channels[0] = x.size(1);
  const auto by_channel = [&](const Tensor& t) { return t.defined() ? reshape(t, channels) : t; };
  return normalized(x, [&](const Tensor& x) {
    const Tensor groups = reshape(x, {x.size(0), num_groups, x.size(0) == 0 ? 0 : x.numel() / x.size(0) / num_groups});
    return scaled(reshape(standardized(groups, 2, eps), x.shape()), by_channel(weight), by_channel(bias));
  });
}

}  // namespace lockstep
