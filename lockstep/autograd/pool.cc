#include "lockstep/autograd/pool.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/pool.h"

namespace lockstep {
namespace {

// Whether x has no batch.
bool has_no_batch(const Tensor& x, int dims) { return x.defined() && x.shape().dim() == dims; }

// The largest elements of windows whose elements are o.dilation apart along axis 2 + i, and their places on the axis.
MaxResult max_along(const Tensor& x, std::size_t i, const Pool2dOptions& o) {
  const int axis = 2 + static_cast<int>(i);
  const std::int64_t kernel = o.kernel_size[i], stride = o.stride[i], padding = o.padding[i], dilation = o.dilation[i],
                     extent = x.size(axis);
  check(kernel >= 1 && stride >= 1 && dilation >= 1 && padding >= 0 && padding <= kernel / 2,
        "max_pool2d: kernel {}, stride {}, dilation {}, padding {}, expected at least 1, 1, 1 and 0 to half the kernel",
        kernel, stride, dilation, padding);
  ops::check_window("max_pool2d", {kernel, stride, dilation, padding});
  const std::int64_t span = dilation * (kernel - 1) + 1, reach = extent + 2 * padding - span;
  check(reach >= 0, "max_pool2d: the window ({} wide) does not fit the padded input ({} wide)", span,
        extent + 2 * padding);
  std::int64_t count = reach / stride + 1;
  if (o.ceil_mode && reach % stride != 0 && count * stride - padding < extent) ++count;
  const std::int64_t reached = (count - 1) * stride + 1;  // by the windows' first elements
  std::vector<std::int64_t> widths(axis == 2 ? 4 : 2);
  widths[widths.size() - 2] = padding;
  widths[widths.size() - 1] = std::max<std::int64_t>(reached + span - 1 - extent - padding, 0);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // The first pixel of a window whose first element is at `place`.
  const auto first_pixel = [&](std::int64_t place) {
    return place < 0 ? (place % dilation + dilation) % dilation : place;
  };
  Tensor padded = x;
  if (padding > 0 && extent > 0) {
    // Before x, copies of the windows' first pixels. As in PyTorch, the place and the gradient of a window of minus
    // infinities are therefore those of a pixel, never of padding.
    std::vector<std::int64_t> pixels;
    std::vector<bool> outside;
    for (std::int64_t place = -padding; place < 0; ++place) {
      outside.push_back(first_pixel(place) >= extent);
      pixels.push_back(std::min(first_pixel(place), extent - 1));
    }
    Tensor before = index_select(x, axis, beside(x, Tensor::from(pixels, {padding})));
    if (std::ranges::find(outside, true) != outside.end()) {
      Shape row{1, 1, 1, 1};
      row[axis] = padding;
      before = masked_fill(before, beside(x, Tensor::from(outside, row)), -kInfinity);
    }
    padded = cat({before, x}, axis);
    widths[widths.size() - 2] = 0;
  }
  padded = pad(padded, widths, -kInfinity);
  std::vector<Tensor> elements;
  for (std::int64_t k = 0; k < kernel; ++k) {
    elements.push_back(slice(padded, axis, k * dilation, k * dilation + reached, stride));
  }
  auto [values, which] = max(stack(elements, axis), axis);
  std::vector<std::int64_t> first, pixel;
  for (std::int64_t w = 0; w < count; ++w) {
    first.push_back(w * stride - padding);
    pixel.push_back(std::min(first_pixel(first.back()), extent - 1));
  }
  Shape shape{1, 1, 1, 1};
  shape[axis] = count;
  const Tensor places = which * dilation + beside(which, Tensor::from(first, shape));
  return {values, maximum(places, beside(which, Tensor::from(pixel, shape)))};
}

// Row by row, so that the first of equal elements counts.
MaxResult dilated_max_pool(const Tensor& x, const Pool2dOptions& options) {
  check(x.shape().dim() == 4 && is_floating(x.dtype()), "max_pool2d: input is {}, expected floating (N, C, H, W)", x);
  const MaxResult columns = max_along(x, 1, options), rows = max_along(columns.values, 0, options);
  const Tensor column = take_along_dim(columns.indices, rows.indices, 2);
  return {rows.values, rows.indices * static_cast<double>(x.size(3)) + column};
}

OpTraits pool_traits(std::string_view kind, const Pool2dOptions& o) {
  return {kind,
          {{"kernel", op_numbers(o.kernel_size)},
           {"stride", op_numbers(o.stride)},
           {"padding", op_numbers(o.padding)},
           {"count_include_pad", std::int64_t{o.count_include_pad}}}};
}

// Puts the places of the largest elements of each part into `places`.
Tensor max_pool_of_parts(const Tensor& x, const Pool2dOptions& options, std::vector<Array>* places) {
  const auto part = [&](const Arrays& in) -> Lifted {
    auto [y, where] = ops::max_pool2d(in[0], options);
    if (places) places->push_back(where);
    // A program may write the indices that max_pool2d_with_indices() returns.
    return {y, [saved = SavedArray(where), shape = in[0].shape(), options](const PartPass&, const Array& dy) -> Arrays {
              const Array where = saved.get("max pool");
              return {ops::pool2d_backward("max pool backward", dy, shape,
                                           kernels::MaxPoolBackward{options, {}, where.view()}, {where})};
            }};
  };
  return lift("max pool", place_rows("max pool", {x}), {x}, part, [&] { return pool_traits("max_pool", options); });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  if (has_no_batch(x, 3)) return squeeze(max_pool2d(unsqueeze(x, 0), options), 0);
  if (x.defined() && options.dilation != HeightWidth(1)) return dilated_max_pool(x, options).values;
  return max_pool_of_parts(x, options, nullptr);
}

MaxResult max_pool2d_with_indices(const Tensor& x, const Pool2dOptions& options) {
  if (has_no_batch(x, 3)) {
    const MaxResult batch = max_pool2d_with_indices(unsqueeze(x, 0), options);
    return {squeeze(batch.values, 0), squeeze(batch.indices, 0)};
  }
  if (x.defined() && options.dilation != HeightWidth(1)) return dilated_max_pool(x, options);
  std::vector<Array> places;
  Tensor y = max_pool_of_parts(x, options, &places);
  const NoGradGuard no_grad;
  std::size_t part = 0;
  const auto found = [&](const Arrays&) -> Lifted { return {ops::to_layout(places[part++], Layout::plain), nullptr}; };
  return {std::move(y), lift("max pool indices", place_rows("max pool", {x}), {x}, found,
                             [&] { return pool_traits("max_pool_places", options); })};
}

Tensor max_unpool2d(const Tensor& x, const Tensor& indices, std::array<std::int64_t, 2> output_size) {
  const int dims = x.shape().dim();
  check(x.defined() && indices.defined() && (dims == 3 || dims == 4) && indices.shape() == x.shape() &&
            indices.dtype() == DType::i64,
        "max_unpool2d: input is {}, indices {}, expected (N, C, H, W), or (C, H, W), and i64 of the same shape", x,
        indices);
  const auto [height, width] = output_size;
  check(height > 0 && width > 0, "max_unpool2d: output size {} x {}, expected at least 1", height, width);
  const Tensor elements = flatten(x, -2), zeros = zeros_like(elements.detach());
  const Tensor images = scatter(pad(zeros, {0, height * width - zeros.size(-1)}), -1, flatten(indices, -2), elements);
  return unflatten(images, -1, {height, width});
}

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  if (has_no_batch(x, 3)) return squeeze(avg_pool2d(unsqueeze(x, 0), options), 0);
  const auto part = [&](const Arrays& in) -> Lifted {
    return {ops::pool2d("avg_pool2d", in[0], kernels::AvgPool{options}),
            [shape = in[0].shape(), options](const PartPass&, const Array& dy) -> Arrays {
              return {ops::pool2d_backward("avg pool backward", dy, shape, kernels::AvgPoolBackward{options})};
            }};
  };
  return lift("avg pool", place_rows("avg pool", {x}), {x}, part, [&] { return pool_traits("avg_pool", options); });
}

Tensor lp_pool2d(const Tensor& x, double norm_type, const Pool2dOptions& options) {
  if (has_no_batch(x, 3)) return squeeze(lp_pool2d(unsqueeze(x, 0), norm_type, options), 0);
  check(norm_type > 0 && std::isfinite(norm_type), "lp_pool2d: a norm of type {}, expected a finite number above 0",
        norm_type);
  check(options.padding == HeightWidth(0), "lp_pool2d: padding {} x {}, expected 0", options.padding[0],
        options.padding[1]);
  const auto part = [&](const Arrays& in) -> Lifted {
    const Array y = ops::pool2d("lp_pool2d", in[0], kernels::LpPool{options, norm_type});
    return {y,
            [saved_x = SavedArray(in[0]), saved_y = SavedArray(y), norm_type, options](const PartPass&,
                                                                                       const Array& dy) -> Arrays {
              const Array x = saved_x.get("lp_pool2d"), y = saved_y.get("lp_pool2d");
              return {ops::pool2d_backward("lp_pool2d backward", dy, x.shape(),
                                           kernels::LpPoolBackward{options, norm_type, x.view(), y.view()}, {x, y})};
            }};
  };
  return lift("lp_pool2d", place_rows("lp_pool2d", {x}), {x}, part, [&] {
    OpTraits traits = pool_traits("lp_pool", options);
    traits.attributes.emplace_back("norm", norm_type);
    return traits;
  });
}

namespace {

// Sequences as images of one row.
template <typename Pool>
Tensor pool_rows(std::string_view name, const Tensor& x, const Pool1dOptions& o, const Pool& pool) {
  if (has_no_batch(x, 2)) return squeeze(pool_rows(name, unsqueeze(x, 0), o, pool), 0);
  check(x.defined() && x.shape().dim() == 3, "{}: input is {}, expected 3 axes (N, C, L)", name, x);
  check(o.kernel_size >= 1 && o.stride >= 1 && o.padding >= 0 && o.padding <= o.kernel_size / 2,
        "{}: kernel {}, stride {}, padding {}, expected at least 1, 1 and 0 to half the kernel", name, o.kernel_size,
        o.stride, o.padding);
  ops::check_window(name, {o.kernel_size, o.stride, o.padding, o.dilation});
  const std::int64_t span = o.dilation * (o.kernel_size - 1) + 1;
  check(x.size(2) + 2 * o.padding >= span, "{}: the window ({} long) does not fit the padded input ({} long)", name,
        span, x.size(2) + 2 * o.padding);
  const Pool2dOptions options{.kernel_size = {1, o.kernel_size},
                              .stride = {1, o.stride},
                              .padding = {0, o.padding},
                              .count_include_pad = o.count_include_pad,
                              .ceil_mode = o.ceil_mode,
                              .dilation = {1, o.dilation}};
  return squeeze(pool(unsqueeze(x, 2), options), 2);
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options) {
  return pool_rows("max_pool1d", x, options, [](const auto&... in) { return max_pool2d(in...); });
}

Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options) {
  return pool_rows("avg_pool1d", x, options, [](const auto&... in) { return avg_pool2d(in...); });
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

// Joins f(window) for `count` windows that cover an axis.
template <typename F>
Tensor of_windows(const Tensor& x, int axis, std::int64_t count, const F& f) {
  const std::int64_t extent = x.size(axis);
  if (count == extent) return x;
  std::vector<Tensor> results;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = i * extent / count, end = ((i + 1) * extent + count - 1) / count;
    results.push_back(f(narrow(x, axis, first, end - first)));
  }
  return cat(results, axis);
}

Tensor mean_of_windows(const Tensor& x, int axis, std::int64_t count) {
  return of_windows(x, axis, count, [axis](const Tensor& window) { return mean(window, axis, true); });
}

Tensor max_of_windows(const Tensor& x, int axis, std::int64_t count) {
  return of_windows(x, axis, count, [axis](const Tensor& window) { return max(window, axis, true).values; });
}

// The output's size, with the input's in place of -1.
std::array<std::int64_t, 2> adaptive_size(std::string_view name, const Tensor& x, std::array<std::int64_t, 2> size) {
  check(x.defined() && x.shape().dim() == 4 && x.size(2) > 0 && x.size(3) > 0,
        "{}: input is {}, expected 4 axes (N, C, H, W) with pixels", name, x);
  for (std::size_t i = 0; i < 2; ++i) {
    if (size[i] == -1) size[i] = x.size(2 + static_cast<int>(i));
  }
  constexpr std::int64_t kMost = 1 << 20;  // each is an operation
  check(size[0] > 0 && size[1] > 0 && size[0] <= kMost && size[1] <= kMost,
        "{}: output size {} x {}, expected 1 to {} each", name, size[0], size[1], kMost);
  return size;
}

// Sequences as images of one row.
template <typename Pool>
Tensor pool_sequences(std::string_view name, const Tensor& x, std::int64_t output_size, const Pool& pool) {
  const int dims = x.shape().dim();
  check(x.defined() && (dims == 2 || dims == 3), "{}: input is {}, expected 3 axes (N, C, L), or 2 (C, L)", name, x);
  return squeeze(pool(unsqueeze(x, -2), std::array<std::int64_t, 2>{1, output_size}), -2);
}

}  // namespace

Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> output_size) {
  if (has_no_batch(x, 3)) return squeeze(adaptive_avg_pool2d(unsqueeze(x, 0), output_size), 0);
  const auto [height, width] = adaptive_size("adaptive_avg_pool2d", x, output_size);
  if (height == 1 && width == 1) return global_avg_pool2d(x);
  if (x.size(2) % height == 0 && x.size(3) % width == 0) {
    const std::array window{x.size(2) / height, x.size(3) / width};
    return avg_pool2d(x, {.kernel_size = window, .stride = window});
  }
  return mean_of_windows(mean_of_windows(x, 2, height), 3, width);
}

Tensor adaptive_max_pool2d(const Tensor& x, std::array<std::int64_t, 2> output_size) {
  if (has_no_batch(x, 3)) return squeeze(adaptive_max_pool2d(unsqueeze(x, 0), output_size), 0);
  const auto [height, width] = adaptive_size("adaptive_max_pool2d", x, output_size);
  if (x.size(2) % height == 0 && x.size(3) % width == 0) {
    const std::array window{x.size(2) / height, x.size(3) / width};
    return max_pool2d(x, {.kernel_size = window, .stride = window});
  }
  // Row by row: the first of equal elements gets the gradient.
  return max_of_windows(max_of_windows(x, 3, width), 2, height);
}

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output_size) {
  return pool_sequences("adaptive_avg_pool1d", x, output_size, adaptive_avg_pool2d);
}

Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t output_size) {
  return pool_sequences("adaptive_max_pool1d", x, output_size, adaptive_max_pool2d);
}

namespace {

// A pool of volumes: `planes` pools the images [N, C D, H, W], `depths` their results [N, C, D, H' W'] along the depth.
using Pool = std::function<Tensor(const Tensor& images)>;
Tensor pool_volumes(std::string_view name, const Tensor& x, const Pool& planes, const Pool& depths) {
  if (has_no_batch(x, 4)) return squeeze(pool_volumes(name, unsqueeze(x, 0), planes, depths), 0);
  check(x.defined() && x.dim() == 5, "{}: input is {}, expected 5 axes (N, C, D, H, W)", name, x);
  const std::int64_t channels = x.size(1), depth = x.size(2);
  const Tensor y = planes(flatten(x, 1, 2));
  const Tensor z = depths(flatten(unflatten(y, 1, {channels, depth}), 3, 4));
  return unflatten(z, 3, {y.size(2), y.size(3)});
}

Pool2dOptions plane_options(const Pool3dOptions& o) {
  return {.kernel_size = o.kernel_size.height_width(),
          .stride = o.stride.height_width(),
          .padding = o.padding.height_width(),
          .count_include_pad = o.count_include_pad,
          .ceil_mode = o.ceil_mode,
          .dilation = o.dilation.height_width()};
}
Pool2dOptions depth_options(const Pool3dOptions& o) {
  return {.kernel_size = {o.kernel_size[0], 1},
          .stride = {o.stride[0], 1},
          .padding = {o.padding[0], 0},
          .count_include_pad = o.count_include_pad,
          .ceil_mode = o.ceil_mode,
          .dilation = {o.dilation[0], 1}};
}

}  // namespace

Tensor max_pool3d(const Tensor& x, const Pool3dOptions& o) {
  return pool_volumes(
      "max_pool3d", x, [&](const Tensor& t) { return max_pool2d(t, plane_options(o)); },
      [&](const Tensor& t) { return max_pool2d(t, depth_options(o)); });
}

Tensor avg_pool3d(const Tensor& x, const Pool3dOptions& o) {
  return pool_volumes(
      "avg_pool3d", x, [&](const Tensor& t) { return avg_pool2d(t, plane_options(o)); },
      [&](const Tensor& t) { return avg_pool2d(t, depth_options(o)); });
}

Tensor adaptive_avg_pool3d(const Tensor& x, std::array<std::int64_t, 3> size) {
  return pool_volumes(
      "adaptive_avg_pool3d", x,
      [&](const Tensor& t) {
        return adaptive_avg_pool2d(t, {size[1], size[2]});
      },
      [&](const Tensor& t) {
        return adaptive_avg_pool2d(t, {size[0], -1});
      });
}

Tensor adaptive_max_pool3d(const Tensor& x, std::array<std::int64_t, 3> size) {
  return pool_volumes(
      "adaptive_max_pool3d", x,
      [&](const Tensor& t) {
        return adaptive_max_pool2d(t, {size[1], size[2]});
      },
      [&](const Tensor& t) {
        return adaptive_max_pool2d(t, {size[0], -1});
      });
}

}  // namespace lockstep
