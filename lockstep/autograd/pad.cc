// Padding with a constant, or with elements of the tensor itself, which are indexed axis by axis.
#include "lockstep/autograd/pad.h"

#include <algorithm>
#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

// The index in x of the element at place i of the padded axis. Place 0 is the first element of x.
std::int64_t place_of(PadMode mode, std::int64_t i, std::int64_t extent) {
  switch (mode) {
    case PadMode::reflect: return std::abs(i) < extent ? std::abs(i) : 2 * (extent - 1) - i;
    case PadMode::circular: return (i % extent + extent) % extent;
    case PadMode::replicate:
    case PadMode::constant: break;
  }
  return std::clamp<std::int64_t>(i, 0, extent - 1);
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& widths, const Scalar& value) {
  check(x.defined(), "pad: undefined tensor");
  ops::check_holds("pad", x.dtype(), value);
  const int dims = x.shape().dim(), padded = static_cast<int>(widths.size()) / 2;
  check(widths.size() % 2 == 0 && padded <= dims, "pad: {} widths for {}, expected two for each of at most {} axes",
        widths.size(), x.shape(), dims);
  std::vector<std::int64_t> before(static_cast<std::size_t>(dims)), after(before);
  Tensor inner = x;
  for (int i = 0; i < padded; ++i) {
    const int axis = dims - 1 - i;
    const std::int64_t left = widths[2 * static_cast<std::size_t>(i)],
                       right = widths[2 * static_cast<std::size_t>(i) + 1];
    if (left == 0 && right == 0) continue;
    if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch("pad", x, "and padding belongs to none of them");
    const std::int64_t kept = x.size(axis) + std::min<std::int64_t>(left, 0) + std::min<std::int64_t>(right, 0);
    check(kept >= 0, "pad: widths {} and {} remove more than the {} elements of axis {} of {}", left, right,
          x.size(axis), axis, x.shape());
    if (kept != x.size(axis)) inner = narrow(inner, axis, std::max<std::int64_t>(-left, 0), kept);
    before[static_cast<std::size_t>(axis)] = std::max<std::int64_t>(left, 0);
    after[static_cast<std::size_t>(axis)] = std::max<std::int64_t>(right, 0);
  }
  const auto part = [&](const Arrays& in) -> Lifted {
    Shape shape = in[0].shape();
    for (int i = 0; i < dims; ++i) {
      shape[i] += before[static_cast<std::size_t>(i)] + after[static_cast<std::size_t>(i)];
    }
    return {ops::pad(in[0], shape, before, value),
            [before, old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
              Array dx = dy;
              for (int i = 0; i < old.dim(); ++i) {
                dx = ops::slice(dx, i, before[static_cast<std::size_t>(i)], old[i]);
              }
              return {dx};
            }};
  };
  return lift("pad", place_as("pad", inner), {inner}, part, [&] {
    return OpTraits{{}, {{"before", before}, {"after", after}, {"value", value}}};
  });
}

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& widths, PadMode mode, const Scalar& value) {
  if (mode == PadMode::constant) return pad(x, widths, value);
  check(x.defined(), "pad: undefined tensor");
  check(value == 0, "pad: value {} with mode reflect, replicate, or circular, expected mode constant", value);
  const std::size_t padded = widths.size() / 2;
  check(widths.size() % 2 == 0 && static_cast<int>(padded) <= x.shape().dim(),
        "pad: {} widths for {}, expected two for each of at most {} axes", widths.size(), x.shape(), x.shape().dim());
  Tensor y = x;
  for (std::size_t k = 0; k < padded; ++k) {
    const int axis = x.shape().dim() - 1 - static_cast<int>(k);
    const std::int64_t left = widths[2 * k], right = widths[2 * k + 1], extent = x.size(axis);
    if (left == 0 && right == 0) continue;
    if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch("pad", x, "and padding belongs to none of them");
    ops::check_window("pad", {left, right});
    const std::int64_t most = mode == PadMode::reflect ? extent - 1 : extent;
    check(extent > 0 && (mode == PadMode::replicate || std::max(left, right) <= most),
          "pad: widths {} and {} of axis {} of {}, expected at most {}", left, right, axis, x.shape(), most);
    check(extent + left + right > 0, "pad: widths {} and {} remove all elements of axis {} of {}", left, right, axis,
          x.shape());
    std::vector<std::int64_t> places;
    for (std::int64_t i = -left; i < extent + right; ++i) places.push_back(place_of(mode, i, extent));
    y = index_select(y, axis, beside(y, Tensor::from(places, {std::ssize(places)})));
  }
  return owned(y, x);
}

}  // namespace lockstep
