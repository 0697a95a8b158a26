// Repetitions and other orders of elements.
#include "lockstep/autograd/rearrange.h"

#include <algorithm>

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

// Inserts an axis of `count` copies before axis `place` and merges it with the axis `into`.
Tensor repeated(const Tensor& x, int place, int into, std::int64_t count) {
  if (count == 1) return x;
  const Tensor one = unsqueeze(x, place);
  Shape shape = one.shape();
  shape[place] = count;
  return flatten(expand(one, shape), into, into + 1);
}

std::vector<int> dims_of(std::string_view name, const Tensor& x, const Dims& dims) {
  std::vector<int> axes;
  for (int dim : dims) {
    axes.push_back(ops::resolve_axis(name, x.shape(), dim));
    check(std::ranges::count(axes, axes.back()) == 1, "{}: axis {} is named twice", name, dim);
  }
  return axes;
}

Tensor repeat_as(std::string_view name, const Tensor& x, const Shape& sizes) {
  check(x.defined(), "{}: undefined tensor", name);
  check(sizes.dim() >= x.shape().dim(), "{}: {} numbers for {}, expected one for each axis", name, sizes.dim(),
        x.shape());
  for (std::int64_t count : sizes) check(count >= 0, "{}: {} copies, expected at least 0", name, count);
  Tensor y = x;
  while (y.shape().dim() < sizes.dim()) y = unsqueeze(y, 0);
  for (int i = 0; i < sizes.dim(); ++i) y = repeated(y, i, i, sizes[i]);
  return owned(y, x);
}

}  // namespace

Tensor repeat(const Tensor& x, const Shape& sizes) { return repeat_as("repeat", x, sizes); }

Tensor tile(const Tensor& x, const Shape& dims) {
  Shape sizes(std::vector<std::int64_t>(static_cast<std::size_t>(std::max(dims.dim(), x.shape().dim())), 1));
  for (int i = 1; i <= dims.dim(); ++i) sizes[-i] = dims[-i];
  return repeat_as("tile", x, sizes);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::optional<int> dim) {
  check(x.defined(), "repeat_interleave: undefined tensor");
  check(repeats >= 0, "repeat_interleave: {} times, expected at least 0", repeats);
  if (!dim || x.shape().dim() == 0) {
    if (dim) is_axis_of_scalar("repeat_interleave", x, *dim);
    return owned(repeated(flatten(x), 1, 0, repeats), x);
  }
  const int axis = ops::resolve_axis("repeat_interleave", x.shape(), *dim);
  return owned(repeated(x, axis + 1, axis, repeats), x);
}

Tensor flip(const Tensor& x, const Dims& dims) {
  check(x.defined(), "flip: undefined tensor");
  unsigned axes = 0;
  for (int axis : dims_of("flip", x, dims)) axes |= 1U << axis;
  const Placed placed = place_as("flip", x);
  if (placed.kind == Kind::cut && (axes >> placed.cut.axis & 1U))
    fail_across_batch("flip", x, "and it would change their order");
  const auto part = [axes](const Arrays& in) -> Lifted {
    return {ops::flip(in[0], axes),
            [axes](const PartPass&, const Array& dy) -> Arrays { return {ops::flip(dy, axes)}; }};
  };
  return lift("flip", placed, {x}, part, [&] { return OpTraits{{}, {{"axes", std::int64_t{axes}}}}; });
}

Tensor roll(const Tensor& x, std::int64_t shift, std::optional<int> dim) {
  check(x.defined(), "roll: undefined tensor");
  if (x.shape().dim() == 0) return clone(x);
  if (!dim) {
    if (x->kind == Kind::cut) fail_across_batch("roll", x, "and it would change their order");
    return roll(flatten(x), shift, 0).reshape(x.shape());
  }
  const int axis = ops::resolve_axis("roll", x.shape(), *dim);
  if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch("roll", x, "and it would change their order");
  const std::int64_t n = x.size(axis);
  if (n == 0) return clone(x);
  const std::int64_t first = ((-shift % n) + n) % n;
  if (first == 0) return clone(x);
  return cat({narrow(x, axis, first, n - first), narrow(x, axis, 0, first)}, axis);
}

Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const Dims& dims) {
  check(x.defined(), "roll: undefined tensor");
  const std::vector<int> axes = dims_of("roll", x, dims);
  check(shifts.size() == axes.size(), "roll: {} shifts and {} axes, expected one shift for each axis", shifts.size(),
        axes.size());
  Tensor y = x;
  for (std::size_t i = 0; i < axes.size(); ++i) y = roll(y, shifts[i], axes[i]);
  return owned(y, x);
}

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  check(x.defined(), "movedim: undefined tensor");
  const std::vector<int> from = dims_of("movedim", x, source), to = dims_of("movedim", x, destination);
  check(from.size() == to.size(), "movedim: {} axes to {} places, expected a place for each axis", from.size(),
        to.size());
  std::vector<int> axes(static_cast<std::size_t>(x.shape().dim()), -1);
  for (std::size_t i = 0; i < from.size(); ++i) axes[static_cast<std::size_t>(to[i])] = from[i];
  int next = 0;
  for (int& axis : axes) {
    if (axis >= 0) continue;
    while (std::ranges::count(from, next) > 0) ++next;
    axis = next++;
  }
  return permute(x, axes);
}

}  // namespace lockstep
