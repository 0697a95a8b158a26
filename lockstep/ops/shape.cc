#include "lockstep/ops/shape.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "lockstep/backend/copy.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

using Strides = std::array<std::int64_t, Shape::kMaxDim>;

// The strides of a plain array.
Strides strides_of(const Shape& shape) {
  Strides strides{};
  std::int64_t stride = 1;
  for (int axis = shape.dim() - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

// Runs `copy` from x to y. If it does not write all elements of y, the others stay, so the task reads y, too.
void copy_strided(std::string_view what, const StridedCopy& copy, const Array& x, const Array& y) {
  const auto kernel = kernels::CopyStrided{copy, x.view(), y.view()};
  copy.extent.numel() == y.numel() ? launch(what, {x}, {y}, kernel) : launch(what, {x, y}, {y}, kernel);
}

}  // namespace

int resolve_axis(std::string_view what, const Shape& shape, int axis) {
  const int dims = shape.dim();
  check(axis >= -dims && axis < dims, "{}: axis {} of shape {}, expected {} to {}", what, axis, shape, -dims, dims - 1);
  return axis < 0 ? axis + dims : axis;
}

Array around_axis(const Array& x, int axis) {
  std::int64_t before = 1, after = 1;
  for (int i = 0; i < axis; ++i) before *= x.size(i);
  for (int i = axis + 1; i < x.shape().dim(); ++i) after *= x.size(i);
  return reshape(to_layout(x, Layout::plain), {before, x.size(axis), after});
}

Shape without_axes(const Shape& shape, unsigned axes) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.dim(); ++i) {
    if (!(axes >> i & 1U)) dims.push_back(shape[i]);
  }
  return Shape(dims);
}

Array permute(const Array& x, std::span<const int> axes) {
  const Array plain = to_layout(x, Layout::plain);
  check(static_cast<int>(axes.size()) == x.shape().dim(),
        "permute: {} axes for shape {}, expected each of its axes once", axes.size(), x.shape());
  StridedCopy copy{.extent = x.shape()};
  const Strides from = strides_of(x.shape());
  unsigned seen = 0;
  for (int i = 0; i < x.shape().dim(); ++i) {
    const int axis = axes[static_cast<std::size_t>(i)];
    check(axis >= 0 && axis < x.shape().dim() && !(seen >> axis & 1U),
          "permute: axis {} is repeated or out of range, expected each axis once", axis);
    seen |= 1U << axis;
    copy.extent[i] = x.shape()[axis];
    copy.from[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(axis)];
  }
  copy.to = strides_of(copy.extent);
  Array y = empty(copy.extent, x.dtype(), x.device());
  copy_strided("permute", copy, plain, y);
  return y;
}

Array move_axis(const Array& x, int from, int to) {
  if (from == to) return x;
  std::vector<int> axes(static_cast<std::size_t>(x.shape().dim()));
  std::iota(axes.begin(), axes.end(), 0);
  axes.erase(axes.begin() + from);
  axes.insert(axes.begin() + to, from);
  return permute(x, axes);
}

Array expand(const Array& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int more = shape.dim() - x.shape().dim();
  const Array plain = to_layout(x, Layout::plain);
  const Strides from = strides_of(x.shape());
  StridedCopy copy{.extent = shape};
  bool fits = more >= 0;
  for (int i = 0; fits && i < x.shape().dim(); ++i) {
    const bool repeats = x.size(i) == 1 && shape[more + i] != 1;
    fits = repeats || x.size(i) == shape[more + i];
    copy.from[static_cast<std::size_t>(more + i)] = repeats ? 0 : from[static_cast<std::size_t>(i)];
  }
  check(fits, "expand: {} does not broadcast to {}", x.shape(), shape);
  copy.to = strides_of(shape);
  Array y = empty(shape, x.dtype(), x.device());
  copy_strided("expand", copy, plain, y);
  return y;
}

Array slice(const Array& x, int axis, std::int64_t start, std::int64_t count, std::int64_t step) {
  const std::int64_t size = x.size(axis);
  check(step > 0, "slice: step {}, expected at least 1", step);
  check(start >= 0 && count >= 0 && start <= size && (count == 0 || count - 1 <= (size - 1 - start) / step),
        "slice: {} elements from {} on, {} apart, of axis {} of {}", count, start, step, axis, x.shape());
  if (start == 0 && count == size) return x;
  std::int64_t before = 1;
  for (int i = 0; i < axis; ++i) before *= x.size(i);
  if (axis == 0 && (step == 1 || count <= 1)) return narrow(x, start, count);
  const Array plain = to_layout(x, Layout::plain);
  StridedCopy copy{.extent = x.shape(), .from = strides_of(x.shape())};
  copy.extent[axis] = count;
  if (before == 1 && (step == 1 || count <= 1)) {
    Shape rows = x.shape();
    for (int i = 0; i < axis; ++i) rows = without_axes(rows, 1);
    return reshape(narrow(reshape(plain, rows), start, count), copy.extent);
  }
  copy.from_first = start * copy.from[static_cast<std::size_t>(axis)];
  copy.from[static_cast<std::size_t>(axis)] *= step;
  copy.to = strides_of(copy.extent);
  Array y = empty(copy.extent, x.dtype(), x.device());
  copy_strided("slice", copy, plain, y);
  return y;
}

SliceRange resolve_slice(std::int64_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> end,
                         std::int64_t step) {
  check(step > 0, "slice: step {}, expected at least 1", step);
  const auto place = [size](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size); };
  const std::int64_t first = place(start.value_or(0)), last = place(end.value_or(size));
  return {.start = first, .count = last > first ? (last - first - 1) / step + 1 : 0, .step = step};
}

void write_slices_(const Array& x, const Array& y, std::span<const SliceRange> ranges) {
  StridedCopy copy{.extent = y.shape(), .to = strides_of(y.shape())};
  for (std::size_t axis = 0; axis < ranges.size(); ++axis) {
    copy.extent[static_cast<int>(axis)] = ranges[axis].count;
    copy.to_first += ranges[axis].start * copy.to[axis];
    // The stride of a single element is never used, and with a large step, it might not fit.
    copy.to[axis] = ranges[axis].count > 1 ? copy.to[axis] * ranges[axis].step : 0;
  }
  copy.from = strides_of(copy.extent);
  check(x.numel() == copy.extent.numel() && x.dtype() == y.dtype() && y.layout() == Layout::plain,
        "write_slices_: {} for {} places of {}, expected its type and as many elements, and a plain array", x,
        copy.extent, y);
  // The copy must not read what it writes.
  copy_strided("write slices", copy, to_layout(x.storage() == y.storage() ? copy_of(x) : x, Layout::plain), y);
}

Array flip(const Array& x, unsigned axes) {
  const Array plain = to_layout(x, Layout::plain);
  StridedCopy copy{.extent = x.shape(), .from = strides_of(x.shape()), .to = strides_of(x.shape())};
  for (int i = 0; i < x.shape().dim(); ++i) {
    if (!(axes >> i & 1U)) continue;
    std::int64_t& stride = copy.from[static_cast<std::size_t>(i)];
    copy.from_first += std::max<std::int64_t>(x.size(i) - 1, 0) * stride;
    stride = -stride;
  }
  Array y = empty(x.shape(), x.dtype(), x.device());
  copy_strided("flip", copy, plain, y);
  return y;
}

Array slice_into_zeros(const Array& y, const Shape& shape, int axis, std::int64_t start, std::int64_t step) {
  if (y.shape() == shape) return y;
  Array x = full(shape, 0, y.dtype(), y.device());
  StridedCopy copy{.extent = y.shape(), .from = strides_of(y.shape()), .to = strides_of(shape)};
  copy.to_first = start * copy.to[static_cast<std::size_t>(axis)];
  copy.to[static_cast<std::size_t>(axis)] *= step;
  copy_strided("slice backward", copy, to_layout(y, Layout::plain), x);
  return x;
}

Array pad(const Array& x, const Shape& shape, std::span<const std::int64_t> start, const Scalar& value) {
  if (x.shape() == shape) return x;
  Array y = full(shape, value, x.dtype(), x.device());
  StridedCopy copy{.extent = x.shape(), .from = strides_of(x.shape()), .to = strides_of(shape)};
  for (std::size_t i = 0; i < start.size(); ++i) copy.to_first += start[i] * copy.to[i];
  copy_strided("pad", copy, to_layout(x, Layout::plain), y);
  return y;
}

Array cat(std::span<const Array> parts, int axis) {
  check(!parts.empty(), "cat: no arrays");
  Shape shape = parts[0].shape();
  shape[axis] = 0;
  std::vector<Array> plain;
  for (const Array& part : parts) {
    check_defined("cat", part);
    Shape expected = shape;
    expected[axis] = part.shape().dim() == shape.dim() ? part.size(axis) : 0;
    check(part.shape() == expected && part.dtype() == parts[0].dtype(),
          "cat: {} and {}, expected the same type, and the same shape except on axis {}", part, parts[0], axis);
    shape[axis] += part.size(axis);
    plain.push_back(to_layout(part, Layout::plain));
  }
  Array y = empty(shape, parts[0].dtype(), parts[0].device());
  const auto i = static_cast<std::size_t>(axis);
  std::vector<std::pair<View, StridedCopy>> copies;
  const Strides to = strides_of(shape);
  std::int64_t start = 0;
  for (const Array& part : plain) {
    copies.emplace_back(
        part.view(),
        StridedCopy{.extent = part.shape(), .from = strides_of(part.shape()), .to = to, .to_first = start * to[i]});
    start += part.size(axis);
  }
  launch("cat", plain, std::span(&y, 1), [copies = std::move(copies), y = y.view()](Backend& b, KernelContext& c) {
    for (const auto& [x, copy] : copies) b.run(c, kernels::CopyStrided{copy, x, y});
  });
  return y;
}

}  // namespace lockstep::ops
