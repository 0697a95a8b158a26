#include "lockstep/autograd/pool.h"

#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/pool.h"

namespace lockstep {

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return lift("max pool", place_rows("max pool", {x}), {x}, [&](const Arrays& in) -> Lifted {
    auto [y, where] = ops::max_pool2d(in[0], options);
    return {y, [where = where, shape = in[0].shape(), options](const PartPass&, const Array& dy) -> Arrays {
              return {ops::pool2d_backward("max pool backward", dy, shape,
                                           kernels::MaxPoolBackward{options, {}, where.view()}, {where})};
            }};
  });
}

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return lift("avg pool", place_rows("avg pool", {x}), {x}, [&](const Arrays& in) -> Lifted {
    return {ops::pool2d("avg_pool2d", in[0], kernels::AvgPool{options}),
            [shape = in[0].shape(), options](const PartPass&, const Array& dy) -> Arrays {
              return {ops::pool2d_backward("avg pool backward", dy, shape, kernels::AvgPoolBackward{options})};
            }};
  });
}

Tensor lp_pool2d(const Tensor& x, double norm_type, const Pool2dOptions& options) {
  check(norm_type > 0 && std::isfinite(norm_type), "lp_pool2d: a norm of type {}, expected a finite number above 0",
        norm_type);
  check(options.padding == HeightWidth(0), "lp_pool2d: padding {} x {}, expected 0", options.padding[0],
        options.padding[1]);
  return lift("lp_pool2d", place_rows("lp_pool2d", {x}), {x}, [&](const Arrays& in) -> Lifted {
    const Array y = ops::pool2d("lp_pool2d", in[0], kernels::LpPool{options, norm_type});
    return {y, [x = in[0], y, norm_type, options](const PartPass&, const Array& dy) -> Arrays {
              return {ops::pool2d_backward("lp_pool2d backward", dy, x.shape(),
                                           kernels::LpPoolBackward{options, norm_type, x.view(), y.view()}, {x, y})};
            }};
  });
}

namespace {

// Sequences as images of one row.
template <typename Pool>
Tensor pool_rows(std::string_view name, const Tensor& x, const Pool1dOptions& o, const Pool& pool) {
  check(x.defined() && x.shape().dim() == 3, "{}: input is {}, expected 3 axes (N, C, L)", name, x);
  check(o.kernel_size >= 1 && o.stride >= 1 && o.padding >= 0 && 2 * o.padding <= o.kernel_size,
        "{}: kernel {}, stride {}, padding {}, expected at least 1, 1 and 0 to half the kernel", name, o.kernel_size,
        o.stride, o.padding);
  check(x.size(2) + 2 * o.padding >= o.kernel_size, "{}: the window ({} long) does not fit the padded input ({} long)",
        name, o.kernel_size, x.size(2) + 2 * o.padding);
  const Pool2dOptions options{.kernel_size = {1, o.kernel_size},
                              .stride = {1, o.stride},
                              .padding = {0, o.padding},
                              .count_include_pad = o.count_include_pad,
                              .ceil_mode = o.ceil_mode};
  return squeeze(pool(unsqueeze(x, 2), options), 2);
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options) {
  return pool_rows("max_pool1d", x, options, max_pool2d);
}

Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options) {
  return pool_rows("avg_pool1d", x, options, avg_pool2d);
}

Tensor global_avg_pool2d(const Tensor& x) {
  return lift("global avg pool", place_rows("global avg pool", {x}), {x}, [](const Arrays& in) -> Lifted {
    return {ops::global_avg_pool2d(in[0]),
            [shape = in[0].shape(), layout = in[0].layout()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::global_avg_pool2d_backward(dy, shape, layout)};
            }};
  });
}

namespace {

// Means over `count` windows of an axis.
Tensor mean_of_windows(const Tensor& x, int axis, std::int64_t count) {
  const std::int64_t extent = x.size(axis);
  if (count == extent) return x;
  std::vector<Tensor> means;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = i * extent / count, end = ((i + 1) * extent + count - 1) / count;
    means.push_back(mean(narrow(x, axis, first, end - first), axis, true));
  }
  return cat(means, axis);
}

}  // namespace

Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> output_size) {
  check(x.defined() && x.shape().dim() == 4 && x.size(2) > 0 && x.size(3) > 0,
        "adaptive_avg_pool2d: input is {}, expected 4 axes (N, C, H, W) with pixels", x);
  auto [height, width] = output_size;
  height = height == -1 ? x.size(2) : height, width = width == -1 ? x.size(3) : width;
  check(height > 0 && width > 0, "adaptive_avg_pool2d: output size {} x {}, expected at least 1", height, width);
  if (height == 1 && width == 1) return global_avg_pool2d(x);
  if (x.size(2) % height == 0 && x.size(3) % width == 0) {
    const std::array window{x.size(2) / height, x.size(3) / width};
    return avg_pool2d(x, {.kernel_size = window, .stride = window});
  }
  return mean_of_windows(mean_of_windows(x, 2, height), 3, width);
}

}  // namespace lockstep
