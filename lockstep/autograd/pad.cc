// Padding with a constant.
#include "lockstep/autograd/pad.h"

#include <algorithm>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/shape.h"

namespace lockstep {

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& widths, double value) {
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
  return lift("pad", place_as("pad", inner), {inner}, [&](const Arrays& in) -> Lifted {
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
  });
}

}  // namespace lockstep
