// Slices of tensors: narrow, select, slice, split, chunk, unbind.
#include "lockstep/autograd/slice.h"

#include <algorithm>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

// `count` elements of an axis, which is not the batch axis, from `start` on, `step` apart.
Tensor take_slice(std::string_view name, const Tensor& x, int axis, std::int64_t start, std::int64_t count,
                  std::int64_t step, bool keepdim = true) {
  Placed placed = place_as(name, x);
  if (placed.kind == Kind::cut) {
    if (placed.cut.axis == axis) fail_across_batch(name, x, "and it would take some of them");
    if (!keepdim && placed.cut.axis > axis) --placed.cut.axis;
  }
  const auto part = [=](const Arrays& in) -> Lifted {
    const Array y = ops::slice(in[0], axis, start, count, step);
    const Shape kept = y.shape();
    return {keepdim ? y : ops::reshape(ops::to_layout(y, Layout::plain), ops::without_axes(kept, 1U << axis)),
            [=, old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
              const Array g = keepdim ? dy : ops::reshape(ops::to_layout(dy, Layout::plain), kept);
              return {ops::slice_into_zeros(g, old, axis, start, step)};
            }};
  };
  return lift_view(name, placed, x, part, [&] {
    return OpTraits{
        "slice",
        {{"axis", axis}, {"start", start}, {"count", count}, {"step", step}, {"keepdim", std::int64_t{keepdim}}}};
  });
}

struct Unbind : Function {
  std::vector<Tensor> forward(const Tensor& x, int along) {
    axis = along;
    std::vector<Tensor> parts;
    for (std::int64_t i = 0; i < x.size(axis); ++i) {
      parts.push_back(take_slice("unbind", x, axis, i, 1, 1, false));
    }
    return parts;
  }
  Tensor backward(std::span<const Tensor> output_grads) {
    std::vector<Tensor> grads(output_grads.begin(), output_grads.end());
    const auto some = std::ranges::find_if(grads, &Tensor::defined);
    const Tensor zeros = std::ranges::all_of(grads, &Tensor::defined) ? Tensor() : zeros_like(*some);
    for (Tensor& grad : grads) grad = grad.defined() ? grad : zeros;
    return stack(grads, axis);
  }
  int axis = 0;
};

}  // namespace

Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  check(x.defined(), "narrow: undefined tensor");
  const int axis = ops::resolve_axis("narrow", x.shape(), dim);
  return take_slice("narrow", x, axis, start < 0 ? start + x.size(axis) : start, length, 1);
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  const int axis = ops::resolve_axis("select", x.shape(), dim);
  const std::int64_t size = x.size(axis), place = index < 0 ? index + size : index;
  const bool batch = x->kind == Kind::cut && x->cut.axis == axis;
  check(batch || (place >= 0 && place < size), "select: index {} is out of range for axis {} of {}", index, dim,
        x.shape());
  return take_slice("select", x, axis, place, 1, 1, false);
}

Tensor slice(const Tensor& x, int dim, std::optional<std::int64_t> start, std::optional<std::int64_t> end,
             std::int64_t step) {
  const int axis = ops::resolve_axis("slice", x.shape(), dim);
  const ops::SliceRange range = ops::resolve_slice(x.size(axis), start, end, step);
  return take_slice("slice", x, axis, range.start, range.count, range.step);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
  const int axis = ops::resolve_axis("split", x.shape(), dim);
  std::int64_t start = 0;
  std::vector<Tensor> parts;
  for (std::int64_t size : sizes) {
    parts.push_back(take_slice("split", x, axis, start, size, 1));
    start += size;
  }
  check(start == x.size(axis), "split: the sizes add up to {}, expected {}, the extent of axis {} of {}", start,
        x.size(axis), dim, x.shape());
  return parts;
}

std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, int dim) {
  const int axis = ops::resolve_axis("split", x.shape(), dim);
  check(split_size > 0, "split: parts of size {}, expected at least 1", split_size);
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = x.size(axis); left > 0; left -= split_size) sizes.push_back(std::min(left, split_size));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, axis);
}

std::vector<Tensor> unbind(const Tensor& x, int dim) {
  const int axis = ops::resolve_axis("unbind", x.shape(), dim);
  check(x.size(axis) > 0, "unbind: axis {} of {} has no elements", dim, x.shape());
  return apply<Unbind>(x, axis);
}

std::vector<Tensor> chunk(const Tensor& x, int chunks, int dim) {
  const int axis = ops::resolve_axis("chunk", x.shape(), dim);
  check(chunks > 0, "chunk: {} parts, expected at least 1", chunks);
  if (x->kind != Kind::cut || x->cut.axis != axis) {
    const std::int64_t size = x.size(axis);
    if (size > 0) return split(x, (size + chunks - 1) / chunks, axis);
    std::vector<Tensor> empty;
    for (int i = 0; i < chunks; ++i) empty.push_back(narrow(x, axis, 0, 0));
    return empty;
  }
  // The axis has several batches side by side, as cat() joins them.
  Placed placed = place_as("chunk", x);
  if (placed.cut.outer % chunks != 0)
    fail_across_batch("chunk", x, fmt::format("and do not fall into {} equal parts", chunks));
  placed.cut.outer /= chunks;
  std::vector<Tensor> parts;
  for (int i = 0; i < chunks; ++i) {
    parts.push_back(lift_view("chunk", placed, x, [=](const Arrays& in) -> Lifted {
      const std::int64_t count = in[0].size(axis) / chunks;
      return {ops::slice(in[0], axis, i * count, count),
              [=, old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
                return {ops::slice_into_zeros(dy, old, axis, i * count)};
              }};
    }));
  }
  return parts;
}

}  // namespace lockstep
