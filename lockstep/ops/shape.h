// Internal: operations that reorder or select elements. Negative axes count from the end.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Returns `axis` counted from 0. Throws if it is out of range; `what` names the operation in the error.
int resolve_axis(std::string_view what, const Shape& shape, int axis);
// x as [elements before the axis, elements along it, elements after it]: the same memory, or a copy if x is not plain.
Array around_axis(const Array& x, int axis);
// The shape without the axes for which the mask has a bit.
Shape without_axes(const Shape& shape, unsigned axes);

// Axis i of the result is axis axes[i] of x.
Array permute(const Array& x, std::span<const int> axes);
// Axis `from` becomes axis `to`; other axes keep their order.
Array move_axis(const Array& x, int from, int to);
// x broadcast to `shape`, as in NumPy.
Array expand(const Array& x, const Shape& shape);
// `count` elements of the axis from `start` on, `step` apart. Shares x's memory if they are contiguous.
Array slice(const Array& x, int axis, std::int64_t start, std::int64_t count, std::int64_t step = 1);
// The indices that a slice start:end:step selects along an axis of extent `size`, as in Python.
struct SliceRange {
  std::int64_t start = 0, count = 0, step = 1;
};
SliceRange resolve_slice(std::int64_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> end,
                         std::int64_t step);
// Writes x to the elements of y whose index along each axis is in ranges[axis]. y is plain; x has y's type and, in
// plain order, one element for each of them.
void write_slices_(const Array& x, const Array& y, std::span<const SliceRange> ranges);
// x in the reverse order along the axes for which the mask has a bit.
Array flip(const Array& x, unsigned axes);
// The reverse of slice(): zeros of `shape`, except y at the position of the slice. Along other axes, y is at the start.
Array slice_into_zeros(const Array& y, const Shape& shape, int axis, std::int64_t start, std::int64_t step = 1);
// An array of `shape` with `value` in every element, except x from position start[i] on along each axis i.
Array pad(const Array& x, const Shape& shape, std::span<const std::int64_t> start, const Scalar& value);
// Joins the parts along the axis. All other extents must be equal.
Array cat(std::span<const Array> parts, int axis);

}  // namespace lockstep::ops
