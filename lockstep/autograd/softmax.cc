#include "lockstep/autograd/softmax.h"

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/shape.h"
#include "lockstep/ops/softmax.h"

namespace lockstep {
namespace {

using RowFunction = Array (*)(const Array&);
using RowBackward = Array (*)(const Array& y, const Array& dy);

// Applies a function that works along the last axis along any axis.
Tensor along(std::string_view name, const Tensor& x, int dim, RowFunction forward, RowBackward backward) {
  if (is_axis_of_scalar(name, x, dim)) return along(name, x.reshape({1}), 0, forward, backward).reshape({});
  const int axis = ops::resolve_axis(name, x.shape(), dim), last = x.shape().dim() - 1;
  const Placed placed = place_as(name, x);
  if (placed.kind == Kind::cut && placed.cut.axis == axis) fail_across_batch(name, x, "and it would sum over them");
  const auto part = [=](const Arrays& in) -> Lifted {
    const Array y = forward(ops::move_axis(in[0], axis, last));
    return {ops::move_axis(y, last, axis), [=, saved = SavedArray(y)](const PartPass& p, const Array& dy) -> Arrays {
              return {ops::move_axis(backward(saved.get(p.name()), ops::move_axis(dy, axis, last)), last, axis)};
            }};
  };
  return lift(name, placed, {x}, part, [&] { return OpTraits{{}, {{"axis", axis}}}; });
}

Tensor converted(std::string_view name, const Tensor& x, std::optional<DType> dtype) {
  check(x.defined(), "{}: undefined tensor", name);
  return dtype ? cast(x, *dtype) : x;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim, std::optional<DType> dtype) {
  return along("softmax", converted("softmax", x, dtype), dim, ops::softmax, ops::softmax_backward);
}
Tensor log_softmax(const Tensor& x, int dim, std::optional<DType> dtype) {
  return along("log_softmax", converted("log_softmax", x, dtype), dim, ops::log_softmax, ops::log_softmax_backward);
}
Tensor softmin(const Tensor& x, int dim) { return softmax(-x, dim); }

}  // namespace lockstep
