#include "lockstep/autograd/shape.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

// x's elements in the result's `shape`, with the batch where `placed` says.
Tensor reshape_as(std::string_view name, const Placed& placed, const Tensor& x, const Shape& shape) {
  const auto f = [&](const Arrays& in) -> Lifted {
    Shape part = shape;
    if (placed.kind == Kind::cut) {
      const std::int64_t rest = shape[placed.cut.axis] == 0 ? 0 : shape.numel() / shape[placed.cut.axis];
      part[placed.cut.axis] = rest == 0 ? 0 : in[0].numel() / rest;
    }
    return {ops::reshape(ops::to_layout(in[0], Layout::plain), part),
            [old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::reshape(ops::to_layout(dy, Layout::plain), old)};
            }};
  };
  return lift_view(name, placed, x, f, [] { return OpTraits{"reshape"}; });
}

}  // namespace

Tensor reshape(const Tensor& x, Shape shape) {
  check(x.defined(), "reshape: undefined tensor");
  const Shape wanted = shape;
  shape = ops::resolve_shape("reshape", shape, x.numel());
  check(shape.numel() == x.numel(), "reshape: the {} elements of {} do not fit shape {}", x.numel(), x.shape(), wanted);
  return reshape_as("reshape", place_reshaped("reshape", x, shape), x, shape);
}

Tensor flatten(const Tensor& x, int start_dim, int end_dim) {
  Placed placed = place_as("flatten", x);
  if (x.shape().dim() == 0) return reshape(x, {1});
  const int first = ops::resolve_axis("flatten", x.shape(), start_dim),
            last = ops::resolve_axis("flatten", x.shape(), end_dim);
  check(first <= last, "flatten: axes {} to {}, expected start_dim before end_dim, or the same axis", start_dim,
        end_dim);
  std::vector<std::int64_t> dims(x.shape().begin(), x.shape().begin() + first + 1);
  for (int i = first + 1; i <= last; ++i) dims.back() *= x.size(i);
  dims.insert(dims.end(), x.shape().begin() + last + 1, x.shape().end());
  if (placed.kind == Kind::cut) {
    const int axis = x->cut.axis;
    const bool within = axis >= first && axis <= last;
    for (int i = first; within && i <= last; ++i) {
      if (i < axis) placed.cut.outer *= x.size(i);
      if (i > axis) placed.cut.inner *= x.size(i);
    }
    placed.cut.axis -= std::clamp(axis - first, 0, last - first);
  }
  return reshape_as("flatten", placed, x, Shape(dims));
}

Tensor unflatten(const Tensor& x, int dim, const Shape& sizes) {
  const int axis = ops::resolve_axis("unflatten", x.shape(), dim);
  const Shape parts = ops::resolve_shape("unflatten", sizes, x.size(axis));
  check(parts.numel() == x.size(axis),
        "unflatten: axis {} of {} does not fit the sizes {}: their product must be its extent", dim, x.shape(), sizes);
  std::vector<std::int64_t> dims(x.shape().begin(), x.shape().end());
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, parts.begin(), parts.end());
  const Shape shape(dims);
  Placed placed = place_as("unflatten", x);
  if (placed.kind == Kind::cut && x->cut.axis == axis) {
    placed = place_reshaped("unflatten", x, shape);
  } else if (placed.kind == Kind::cut && x->cut.axis > axis) {
    placed.cut.axis += parts.dim() - 1;
  }
  return reshape_as("unflatten", placed, x, shape);
}

Tensor squeeze(const Tensor& x, const Dims& dims) {
  Placed placed = place_as("squeeze", x);
  unsigned axes = 0;
  for (int dim : dims) {
    if (!is_axis_of_scalar("squeeze", x, dim)) axes |= 1U << ops::resolve_axis("squeeze", x.shape(), dim);
  }
  if (dims.empty()) axes = ~0U;
  for (int i = 0; i < x.shape().dim(); ++i) {
    // A batch of one sample stays a batch.
    const bool batch = placed.kind == Kind::cut && i == placed.cut.axis;
    if (x.size(i) != 1 || batch) axes &= ~(1U << i);
  }
  for (int i = 0; placed.kind == Kind::cut && i < x->cut.axis; ++i) placed.cut.axis -= static_cast<int>(axes >> i & 1U);
  return reshape_as("squeeze", placed, x, ops::without_axes(x.shape(), axes));
}

Tensor unsqueeze(const Tensor& x, int dim) {
  Placed placed = place_as("unsqueeze", x);
  const int axes = x.shape().dim();
  check(dim >= -axes - 1 && dim <= axes, "unsqueeze: axis {} of shape {}, expected {} to {}", dim, x.shape(), -axes - 1,
        axes);
  const int axis = dim < 0 ? dim + axes + 1 : dim;
  std::vector<std::int64_t> dims(x.shape().begin(), x.shape().end());
  dims.insert(dims.begin() + axis, 1);
  if (placed.kind == Kind::cut && placed.cut.axis >= axis) ++placed.cut.axis;
  return reshape_as("unsqueeze", placed, x, Shape(dims));
}

Tensor permute(const Tensor& x, std::span<const int> dims) {
  std::vector<int> axes;
  for (int dim : dims) axes.push_back(ops::resolve_axis("permute", x.shape(), dim));
  std::vector<int> back(axes.size());
  check(std::ssize(axes) == x.shape().dim(), "permute: {} axes for shape {}, expected each of its axes once",
        axes.size(), x.shape());
  for (std::size_t i = 0; i < axes.size(); ++i) back[static_cast<std::size_t>(axes[i])] = static_cast<int>(i);
  const auto part = [&](const Arrays& in) -> Lifted {
    return {ops::permute(in[0], axes),
            [back](const PartPass&, const Array& dy) -> Arrays { return {ops::permute(dy, back)}; }};
  };
  return lift_view("permute", place_permuted("permute", x, axes), x, part, [&] {
    return OpTraits{{}, {{"axes", op_numbers(axes)}}};
  });
}

Tensor permute(const Tensor& x, std::initializer_list<int> dims) {
  return permute(x, std::span(dims.begin(), dims.size()));
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  std::vector<int> axes(static_cast<std::size_t>(x.shape().dim()));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[static_cast<std::size_t>(ops::resolve_axis("transpose", x.shape(), dim0))],
            axes[static_cast<std::size_t>(ops::resolve_axis("transpose", x.shape(), dim1))]);
  const auto part = [&](const Arrays& in) -> Lifted {
    return {ops::permute(in[0], axes),
            [axes](const PartPass&, const Array& dy) -> Arrays { return {ops::permute(dy, axes)}; }};
  };
  return lift_view("transpose", place_permuted("transpose", x, axes), x, part, [&] {
    return OpTraits{"permute", {{"axes", op_numbers(axes)}}};
  });
}

Tensor expand(const Tensor& x, Shape shape) {
  Placed placed = place_as("expand", x);
  const int more = shape.dim() - x.shape().dim();
  check(more >= 0, "expand: {} to {}, expected at least as many axes", x.shape(), shape);
  for (int i = 0; i < x.shape().dim(); ++i) {
    if (shape[more + i] == -1) shape[more + i] = x.size(i);
  }
  if (placed.kind == Kind::cut) {
    if (shape[more + placed.cut.axis] != x.size(placed.cut.axis))
      fail_across_batch("expand", x, "which cannot be repeated");
    placed.cut.axis += more;
  }
  return lift_view("expand", placed, x, [&](const Arrays& in) -> Lifted {
    Shape part = shape;
    if (placed.kind == Kind::cut) part[placed.cut.axis] = in[0].size(x->cut.axis);
    return {ops::expand(in[0], part),
            [old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays { return {ops::sum_to(dy, old)}; }};
  });
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  // Whole numbers have no gradient.
  std::optional<NoGradGuard> no_grad;
  if (!is_floating(dtype)) no_grad.emplace();
  return lift_view("cast", place_as("cast", x), x, [dtype](const Arrays& in) -> Lifted {
    return {ops::convert(in[0], dtype, in[0].layout()),
            [old = in[0].dtype()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::convert(dy, old, dy.layout())};
            }};
  });
}

}  // namespace lockstep
