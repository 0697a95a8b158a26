// Resizes images. Rows are chosen and blended first, then columns.
#include "lockstep/autograd/interpolate.h"

#include <algorithm>
#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"

namespace lockstep {
namespace {

// The number of source pixels per result pixel.
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
    return std::max((at + 0.5) * (factor ? 1 / *factor : source / target) - 0.5, 0.0);
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
    const double place = steps.between(i, align_corners);
    lower.push_back(std::min(static_cast<std::int64_t>(place), steps.from - 1));
    upper.push_back(std::min(lower.back() + 1, steps.from - 1));
    shares.push_back(place - static_cast<double>(lower.back()));
  }
  Shape shape{1, 1, 1, 1};
  shape[axis] = steps.to;
  const Tensor share = cast(beside(x, Tensor::from(shares, shape)), x.dtype());
  return choose(x, axis, lower) * (1 - share) + choose(x, axis, upper) * share;
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  check(x.defined() && x.shape().dim() == 4 && x.size(2) > 0 && x.size(3) > 0,
        "interpolate: input is {}, expected 4 axes (N, C, H, W) with pixels", x);
  check(options.size.has_value() != options.scale_factor.has_value(),
        "interpolate: expected a size or a scale factor, found {}", options.size ? "both" : "none");
  check(!options.align_corners || options.mode == Interpolation::bilinear,
        "interpolate: align_corners with nearest, expected bilinear");
  Tensor y = x;
  for (const int axis : {2, 3}) {
    Steps steps{x.size(axis), 0, options.scale_factor};
    steps.to = options.size ? (*options.size)[static_cast<std::size_t>(axis) - 2]
                            : static_cast<std::int64_t>(static_cast<double>(steps.from) * *options.scale_factor);
    check(steps.to > 0, "interpolate: {} pixels along axis {} of {}, expected at least 1", steps.to, axis, x);
    if (steps.to == steps.from) continue;
    y = options.mode == Interpolation::nearest ? nearest(y, axis, steps)
                                               : linear_between(y, axis, steps, options.align_corners);
  }
  return y;
}

}  // namespace lockstep
