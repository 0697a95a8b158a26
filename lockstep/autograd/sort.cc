// Sorting along an axis.
#include "lockstep/autograd/sort.h"

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

Tensor order(std::string_view name, const Tensor& x, int dim, bool descending) {
  check(x.defined(), "{}: undefined tensor", name);
  const int axis = ops::resolve_axis(name, x.shape(), dim), last = x.shape().dim() - 1;
  if (is_mask(x.dtype())) return order(name, cast(x.detach(), DType::i64), axis, descending);
  const Placed placed = place_as(name, x);
  if (placed.kind == Kind::cut && placed.cut.axis == axis) fail_across_batch(name, x, "and it would sort them");
  NoGradGuard no_grad;
  const auto part = [=](const Arrays& in) -> Lifted {
    const Array rows = ops::move_axis(ops::to_layout(in[0], Layout::plain), axis, last);
    const std::int64_t extent = rows.size(last), count = extent == 0 ? 0 : rows.numel() / extent;
    const Array order = ops::argsort(ops::reshape(rows, {count, extent}), descending);
    return {ops::move_axis(ops::reshape(order, rows.shape()), last, axis), nullptr};
  };
  return lift(name, placed, {x}, part, [&] {
    return OpTraits{"argsort", {{"axis", axis}, {"descending", std::int64_t{descending}}}};
  });
}

// The result for a tensor without axes, from the result for its only element as shape [1].
SortResult without_axis(const SortResult& r) { return {r.values.reshape({}), r.indices.reshape({})}; }

}  // namespace

Tensor argsort(const Tensor& x, int dim, bool descending) {
  if (is_axis_of_scalar("argsort", x, dim)) return argsort(x.reshape({1}), 0, descending).reshape({});
  return order("argsort", x, dim, descending);
}

SortResult sort(const Tensor& x, int dim, bool descending) {
  if (is_axis_of_scalar("sort", x, dim)) return without_axis(sort(x.reshape({1}), 0, descending));
  const Tensor indices = order("sort", x, dim, descending);
  return {take_along_dim(x, indices, dim), indices};
}

MaxResult median(const Tensor& x, int dim, bool keepdim) {
  if (is_axis_of_scalar("median", x, dim)) return without_axis(median(x.reshape({1}), 0, true));
  const int axis = ops::resolve_axis("median", x.shape(), dim);
  check(x.size(axis) > 0, "median: no elements along axis {} of {}", axis, x.shape());
  Tensor indices = narrow(order("median", x, axis, false), axis, (x.size(axis) - 1) / 2, 1);
  // NaN among the elements makes the result NaN: argmax() finds the first one.
  if (is_floating(x.dtype())) indices = where(any(isnan(x), axis, true), argmax(x, axis, true), indices);
  const Tensor values = take_along_dim(x, indices, axis);
  if (keepdim) return {values, indices};
  return {squeeze(values, axis), squeeze(indices, axis)};
}

Tensor median(const Tensor& x) {
  check(x.defined(), "median: undefined tensor");
  if (x->kind == Kind::cut) fail_across_batch("median", x, "and it would sort them");
  return median(x.reshape({x.numel()}), 0).values;
}

SortResult topk(const Tensor& x, std::int64_t k, int dim, bool largest) {
  if (is_axis_of_scalar("topk", x, dim)) {
    check(k <= 1, "topk: {} elements of shape [], expected 0 or 1", k);
    const SortResult only = topk(x.reshape({1}), k, 0, largest);
    return k == 1 ? without_axis(only) : only;
  }
  const int axis = ops::resolve_axis("topk", x.shape(), dim);
  check(k >= 0 && k <= x.size(axis), "topk: {} elements along axis {} of {}, expected 0 to {}", k, axis, x.shape(),
        x.size(axis));
  const Tensor indices = narrow(order("topk", x, axis, largest), axis, 0, k);
  return {take_along_dim(x, indices, axis), indices};
}

}  // namespace lockstep
