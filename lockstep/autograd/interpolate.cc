// Resizes images. First rows are chosen and blended, then columns.
#include "lockstep/autograd/interpolate.h"

#include <algorithm>
#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

// The extents of source and result, which map a result pixel to its place in the source.
struct Steps {
  std::int64_t from, to;
  std::optional<double> factor;

  // Twice the size takes each pixel twice, whatever the factor, as in PyTorch.
  std::int64_t nearest(std::int64_t i) const {
    if (to == 2 * from) return i / 2;
    const std::int64_t place =
        factor ? static_cast<std::int64_t>(std::floor(static_cast<double>(i) / *factor)) : i * from / to;
    return std::min(place, from - 1);
  }
  double between(std::int64_t i, bool align_corners) const {
    const auto at = static_cast<double>(i), source = static_cast<double>(from), target = static_cast<double>(to);
    if (align_corners) return to > 1 ? at * (source - 1) / (target - 1) : 0;
    return (at + 0.5) * (factor ? 1 / *factor : source / target) - 0.5;
  }
};

Tensor choose(const Tensor& x, int axis, const std::vector<std::int64_t>& places) {
  return index_select(x, axis, beside(x, Tensor::from(places, {std::ssize(places)})));
}

Tensor nearest(const Tensor& x, int axis, const Steps& steps) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < steps.to; ++i) places.push_back(steps.nearest(i));
  return choose(x, axis, places);
}

Tensor linear_between(const Tensor& x, int axis, const Steps& steps, bool align_corners) {
  std::vector<std::int64_t> lower, upper;
  std::vector<double> shares;
  for (std::int64_t i = 0; i < steps.to; ++i) {
    const double place = std::max(steps.between(i, align_corners), 0.0);
    lower.push_back(std::min(static_cast<std::int64_t>(place), steps.from - 1));
    upper.push_back(std::min(lower.back() + 1, steps.from - 1));
    shares.push_back(place - static_cast<double>(lower.back()));
  }
  Shape shape{1, 1, 1, 1};
  shape[axis] = steps.to;
  const Tensor share = cast(beside(x, Tensor::from(shares, shape)), x.dtype());
  return choose(x, axis, lower) * (1 - share) + choose(x, axis, upper) * share;
}

// The weight of a pixel at this distance (Keys 1981).
double cubic_weight(double distance) {
  constexpr double a = -0.75;
  const double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;
}

// The weighted sum of the four nearest pixels; the edge pixel stands for pixels beyond the edge.
Tensor cubic_between(const Tensor& x, int axis, const Steps& steps, bool align_corners) {
  Tensor y;
  for (std::int64_t k = -1; k <= 2; ++k) {
    std::vector<std::int64_t> places;
    std::vector<double> weights;
    for (std::int64_t i = 0; i < steps.to; ++i) {
      const double place = steps.between(i, align_corners);
      const auto pixel = static_cast<std::int64_t>(std::floor(place)) + k;
      places.push_back(std::clamp<std::int64_t>(pixel, 0, steps.from - 1));
      weights.push_back(cubic_weight(place - static_cast<double>(pixel)));
    }
    Shape shape{1, 1, 1, 1};
    shape[axis] = steps.to;
    const Tensor part = choose(x, axis, places) * cast(beside(x, Tensor::from(weights, shape)), x.dtype());
    y = y.defined() ? y + part : part;
  }
  return y;
}

Tensor resized(const Tensor& x, int axis, const Steps& steps, const InterpolateOptions& options) {
  switch (options.mode) {
    case Interpolation::nearest: return nearest(x, axis, steps);
    case Interpolation::bilinear: return linear_between(x, axis, steps, options.align_corners);
    case Interpolation::bicubic: return cubic_between(x, axis, steps, options.align_corners);
    case Interpolation::area: break;
  }
  std::array<std::int64_t, 2> size{-1, -1};
  size[static_cast<std::size_t>(axis) - 2] = steps.to;
  return adaptive_avg_pool2d(x, size);
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  check(x.defined() && x.shape().dim() == 4 && x.size(2) > 0 && x.size(3) > 0,
        "interpolate: input is {}, expected 4 axes (N, C, H, W) with pixels", x);
  check(options.size.has_value() != options.scale_factor.has_value(),
        "interpolate: expected a size or a scale factor, found {}", options.size ? "both" : "none");
  check(!options.align_corners || options.mode == Interpolation::bilinear || options.mode == Interpolation::bicubic,
        "interpolate: align_corners with {}, expected bilinear or bicubic",
        options.mode == Interpolation::nearest ? "nearest" : "area");
  Tensor y = x;
  for (const int axis : {2, 3}) {
    Steps steps{x.size(axis), 0, options.scale_factor};
    steps.to =
        options.size
            ? (*options.size)[static_cast<std::size_t>(axis) - 2]
            : static_cast<std::int64_t>(std::min(static_cast<double>(steps.from) * *options.scale_factor, 0x1p62));
    ops::check_window("interpolate", {steps.to});
    check(steps.to > 0, "interpolate: {} pixels along axis {} of {}, expected at least 1", steps.to, axis, x);
    // In PyTorch, a factor moves the places of bicubic also where the size stays.
    const bool moves = options.mode == Interpolation::bicubic && options.scale_factor && !options.align_corners;
    if (steps.to == steps.from && !moves) continue;
    y = resized(y, axis, steps, options);
  }
  return owned(y, x);
}

namespace {

// Converts places from -1 to 1 to pixel coordinates on an axis of `extent` pixels.
Tensor pixels_of(const Tensor& places, std::int64_t extent, const GridSampleOptions& o) {
  const auto n = static_cast<double>(extent);
  const Tensor pixels = o.align_corners ? (places + 1) * ((n - 1) / 2) : ((places + 1) * n - 1) / 2;
  return o.padding_mode == GridPadding::border ? clamp(pixels, 0, n - 1) : pixels;
}

// Whether each pixel coordinate is within the image.
Tensor inside(const Tensor& pixels, std::int64_t extent) {
  return logical_and(ge(pixels, 0), le(pixels, static_cast<double>(extent - 1)));
}

Tensor as_index(const Tensor& pixels, std::int64_t extent) {
  return cast(clamp(nan_to_num(pixels.detach()), 0, static_cast<double>(extent - 1)), DType::i64);
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& o) {
  check(x.defined() && x.dim() == 4 && x.size(2) > 0 && x.size(3) > 0,
        "grid_sample: input is {}, expected [N, C, H, W] with pixels", x);
  check(grid.defined() && grid.dim() == 4 && grid.size(0) == x.size(0) && grid.size(3) == 2,
        "grid_sample: the grid is {} for {}, expected [{}, H', W', 2]", grid, x, x.size(0));
  check(o.mode == Interpolation::bilinear || o.mode == Interpolation::nearest,
        "grid_sample: expected bilinear or nearest interpolation");
  const std::int64_t height = x.size(2), width = x.size(3), rows = grid.size(1), columns = grid.size(2);
  const Tensor at_x = pixels_of(select(grid, 3, 0), width, o), at_y = pixels_of(select(grid, 3, 1), height, o);
  const Tensor flat = flatten(x, 2, 3);  // [N, C, H W]
  // The pixels (px, py), 0 outside: [N, C, H', W'].
  const auto taken = [&](const Tensor& px, const Tensor& py) {
    const Tensor index = as_index(py, height) * static_cast<double>(width) + as_index(px, width);
    const Tensor values = take_along_dim(flat, unsqueeze(flatten(index, 1, 2), 1), 2);
    const Tensor seen = unsqueeze(logical_and(inside(px, width), inside(py, height)), 1);
    return where(seen, unflatten(values, 2, {rows, columns}), 0);
  };
  if (o.mode == Interpolation::nearest) return taken(round(at_x), round(at_y));
  const Tensor x0 = floor(at_x).detach(), y0 = floor(at_y).detach();
  const Tensor right = unsqueeze(at_x - x0, 1), lower = unsqueeze(at_y - y0, 1);
  const Tensor top = taken(x0, y0) * (1 - right) + taken(x0 + 1, y0) * right;
  const Tensor bottom = taken(x0, y0 + 1) * (1 - right) + taken(x0 + 1, y0 + 1) * right;
  return top * (1 - lower) + bottom * lower;
}

}  // namespace lockstep
