// Sorting along an axis.
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/shape.h"

namespace lockstep {

Tensor argsort(const Tensor& x, int dim, bool descending) {
  check(x.defined(), "argsort: undefined tensor");
  const int axis = ops::resolve_axis("argsort", x.shape(), dim), last = x.shape().rank() - 1;
  if (x.dtype() == DType::u8) return argsort(cast(x.detach(), DType::f64), axis, descending);
  check(is_floating(x.dtype()), "argsort: input is {}, expected a floating type: cast() it", x);
  const Placed placed = place_as("argsort", x);
  if (placed.kind == Kind::cut && placed.cut.axis == axis) fail_across_batch("argsort", x, "and it would sort them");
  NoGradGuard no_grad;
  return lift("argsort", placed, {x}, [=](const Arrays& in) -> Lifted {
    const Array rows = ops::move_axis(ops::to_layout(in[0], Layout::plain), axis, last);
    const std::int64_t extent = rows.size(last), count = extent == 0 ? 0 : rows.numel() / extent;
    const Array order = ops::argsort(ops::reshape(rows, {count, extent}), descending);
    return {ops::move_axis(ops::reshape(order, rows.shape()), last, axis), nullptr};
  });
}

SortResult sort(const Tensor& x, int dim, bool descending) {
  const Tensor indices = argsort(x, dim, descending);
  return {take_along_dim(x, indices, dim), indices};
}

SortResult topk(const Tensor& x, std::int64_t k, int dim, bool largest) {
  const int axis = ops::resolve_axis("topk", x.shape(), dim);
  check(k >= 0 && k <= x.size(axis), "topk: {} elements along axis {} of {}, expected 0 to {}", k, axis, x.shape(),
        x.size(axis));
  const Tensor indices = narrow(argsort(x, axis, largest), axis, 0, k);
  return {take_along_dim(x, indices, axis), indices};
}

}  // namespace lockstep
