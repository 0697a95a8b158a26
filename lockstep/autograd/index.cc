// Operations that select by an i64 index tensor.
#include "lockstep/ops/index.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

// The placement of broadcast tensors, none of which has the batch on `axis`.
Placed place_indexed(std::string_view what, InputList inputs, int axis) {
  const int rank = inputs.begin()->shape().rank();
  for (const Tensor& x : inputs) {
    check(x.defined() && x.shape().rank() == rank, "{}: {} beside {}, expected as many axes", what, x.shape(),
          inputs.begin()->shape());
    if (x.kind() == Kind::cut && x.cut().axis == axis) fail_across_batch(what, x, "and it would choose among them");
  }
  return place_broadcast(what, inputs);
}

// index as [1, ..., n, ..., 1], as many axes as x.
Array along_axis(const Array& index, int rank, int axis) {
  Shape shape(std::vector<std::int64_t>(static_cast<std::size_t>(rank), 1));
  shape[axis] = index.numel();
  return ops::reshape(index, shape);
}

// x.take(index) along the axis, and its backward function.
Lifted take(const Array& x, const Array& index, int axis) {
  return {ops::take_along_axis(x, index, axis),
          [index = SavedArray(index), axis, shape = x.shape()](const PartPass& p, const Array& dy) -> Arrays {
            return {ops::sum_to(ops::scatter_sum(dy, index.get(p.name()), axis, shape[axis]), shape), Array()};
          }};
}

}  // namespace

Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim) {
  const int axis = ops::resolve_axis("take_along_dim", x.shape(), dim);
  return lift("take_along_dim", place_indexed("take_along_dim", {x, index}, axis), {x, index},
              [axis](const Arrays& in) { return take(in[0], in[1], axis); });
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  const int axis = ops::resolve_axis("index_select", x.shape(), dim), rank = x.shape().rank();
  check(index.defined() && index.shape().rank() == 1, "index_select: the index is {}, expected one axis",
        index.shape());
  const Tensor inputs[] = {x, index};
  Placed placed = place("index_select", inputs);
  if (placed.kind == Kind::cut) {
    if (x.kind() == Kind::cut && x.cut().axis == axis)
      fail_across_batch("index_select", x, "and it would choose among them");
    if (x.kind() == Kind::cut && index.kind() == Kind::cut) {
      fail_across_batch("index_select", index, "and so are those of the tensor: each would meet all others");
    }
    if (index.kind() == Kind::cut) placed.cut.axis = axis;
  }
  return lift("index_select", placed, {x, index},
              [=](const Arrays& in) { return take(in[0], along_axis(in[1], rank, axis), axis); });
}

Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<std::int64_t> padding_idx) {
  check(weight.defined() && weight.shape().rank() == 2, "embedding: weight is {}, expected 2 axes (numbers, features)",
        weight.shape());
  check(input.defined() && input.dtype() == DType::i64, "embedding: input is {}, expected i64", input);
  const std::int64_t rows = weight.size(0);
  const std::int64_t padding = padding_idx.value_or(0) < 0 ? *padding_idx + rows : padding_idx.value_or(0);
  check(padding >= 0 && padding < std::max<std::int64_t>(rows, 1), "embedding: padding_idx {} of {} rows", padding,
        rows);
  const Tensor inputs[] = {input, weight};
  const Placed placed = place("embedding", inputs);
  if (weight.kind() == Kind::cut) fail_across_batch("embedding", weight, "but a weight is the same for all samples");
  return lift("embedding", placed, {input, weight}, [&](const Arrays& in) -> Lifted {
    std::vector<std::int64_t> dims(in[0].shape().begin(), in[0].shape().end());
    dims.push_back(in[1].size(1));
    const Array index = along_axis(in[0], 2, 0);
    return {ops::reshape(ops::take_along_axis(in[1], index, 0), Shape(dims)),
            [=, index = SavedArray(index), columns = in[1].size(1), skips = padding_idx.has_value()](
                const PartPass& p, const Array& dy) -> Arrays {
              Array g = ops::reshape(ops::to_layout(dy, Layout::plain), {index.get(p.name()).numel(), columns});
              if (skips) {
                const Array here = ops::compare(CompareOp::eq, index.get(p.name()),
                                                ops::scalar_like(index.get(p.name()), static_cast<double>(padding)));
                g = ops::where(here, ops::scalar_like(g, 0), g);
              }
              return {Array(), ops::scatter_sum(g, index.get(p.name()), 0, rows)};
            }};
  });
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const int axis = ops::resolve_axis("scatter_add", x.shape(), dim);
  return lift(
      "scatter_add", place_indexed("scatter_add", {x, index, src}, axis), {x, index, src},
      [axis](const Arrays& in) -> Lifted {
        const Array added = ops::scatter_sum(in[2], in[1], axis, in[0].size(axis));
        check(ops::broadcast_shape("scatter_add", in[0].shape(), added.shape()) == in[0].shape(),
              "scatter_add: source and index make {}, expected no more than {}", added.shape(), in[0].shape());
        return {ops::binary(BinaryOp::add, in[0], added),
                [axis, index = SavedArray(in[1]), shape = in[2].shape()](const PartPass& p, const Array& dy) -> Arrays {
                  Array dsrc;
                  if (p.needs(2)) dsrc = ops::sum_to(ops::take_along_axis(dy, index.get(p.name()), axis), shape);
                  return {dy, Array(), dsrc};
                }};
      });
}

Tensor one_hot(const Tensor& input, std::int64_t num_classes) {
  check(input.defined() && input.dtype() == DType::i64, "one_hot: input is {}, expected i64", input);
  check(num_classes > 0, "one_hot: {} classes, expected at least 1", num_classes);
  return lift("one_hot", place_as("one_hot", input), {input}, [=](const Arrays& in) -> Lifted {
    std::vector<std::int64_t> dims(in[0].shape().begin(), in[0].shape().end());
    dims.push_back(1);
    // Adds 1 at each number, which also checks that it is a class.
    const Array one = ops::full(Shape(dims), 1, DType::f32, in[0].device());
    const Array ones =
        ops::scatter_sum(one, ops::reshape(in[0], Shape(dims)), static_cast<int>(dims.size()) - 1, num_classes);
    return {ops::convert(ones, DType::i64, Layout::plain), nullptr};
  });
}

}  // namespace lockstep
