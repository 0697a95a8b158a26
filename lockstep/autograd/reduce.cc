#include "lockstep/ops/reduce.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {
namespace {

// The gradient of x from that of a sum: it is the same along every axis that was summed.
Array expand(const Array& dy, const Shape& shape) {
  Array zeros = ops::empty(shape, dy.dtype(), dy.device());
  ops::fill_(zeros, 0);
  return ops::binary(BinaryOp::add, zeros, dy);
}

}  // namespace

Tensor sum_to(const Tensor& x, const Shape& shape) {
  Placed placed = place_as("sum_to", x);
  bool mixes = false;
  if (placed.kind == Kind::cut) {
    const int axis = placed.cut.axis - (x.shape().rank() - shape.rank());
    // One sample is no sum.
    mixes = axis < 0 || (shape[axis] == 1 && x.size(placed.cut.axis) != 1);
    if (!mixes && shape[axis] != x.size(placed.cut.axis)) {
      fail("sum: shape {} of {}, expected extents of 1 or as they are", shape.str(), x.describe());
    }
    placed.cut.axis = mixes ? placed.cut.axis : axis;
  }
  const auto part = [&](const Arrays& in) -> Lifted {
    Shape to = shape;
    if (placed.kind == Kind::cut && !mixes) to[placed.cut.axis] = in[0].size(x.cut().axis);
    return {ops::sum_to(in[0], to), [old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
              return {expand(dy, old)};
            }};
  };
  return mixes ? mix_shards("sum", Mix::sum, placed, {x}, part) : lift("sum", placed, {x}, part);
}

Tensor argmax(const Tensor& x) {
  return lift("argmax", place_rows("argmax", {x}), {x.detach()},
              [](const Arrays& in) -> Lifted { return {ops::argmax(in[0]), nullptr}; });
}

Tensor sum(const Tensor& x) {
  return mix_shards("sum", Mix::sum, place_as("sum", x), {x}, [](const Arrays& in) -> Lifted {
    const Array flat = ops::reshape(ops::to_layout(in[0], Layout::plain), {in[0].numel()});
    return {ops::sum_to(flat, {1}), [old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
              Shape ones;
              ones = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(old.rank()), 1));
              return {expand(ops::reshape(dy, ones), old)};
            }};
  });
}

Tensor mean(const Tensor& x) {
  check(x.numel() > 0, "mean: no elements");
  // Their sum may be out of a half type's range.
  if (is_half_dtype(x.dtype())) return cast(mean(cast(x, DType::f32)), x.dtype());
  return sum(x) / static_cast<double>(x.numel());
}

}  // namespace lockstep
