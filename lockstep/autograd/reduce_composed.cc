// Reductions that are composed of others: any, all, norm, prod.
#include <cmath>

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/shape.h"

namespace lockstep {

// Sums count masks exactly, and those over no elements are 0.
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  resolve_axes("any", x, dims);
  return gt(sum(ne(x, 0), dims, keepdim), 0);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  resolve_axes("all", x, dims);
  return eq(sum(eq(x, 0), dims, keepdim), 0);
}

Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  check(x.defined() && is_floating(x.dtype()), "norm: input is {}, expected a floating type", x);
  check(p >= 1, "norm: p is {}, expected at least 1", p);
  const unsigned axes = resolve_axes("norm", x, dims);
  // Powers may exceed a half type's range.
  if (is_half_dtype(x.dtype())) return cast(norm(cast(x, DType::f32), p, dims, keepdim), x.dtype());
  if (std::isinf(p)) {
    for (int i = 0; i < x.shape().dim(); ++i) {
      check(!(axes >> i & 1U) || x.size(i) > 0, "norm: no elements along axis {} of {}", i, x.shape());
    }
    return amax(abs(x), dims, keepdim);
  }
  if (p == 1) return sum(abs(x), dims, keepdim);
  const Tensor powers = sum(p == 2 ? square(x) : pow(abs(x), p), dims, keepdim), none = eq(powers, 0);
  // The gradient of the root of 0 would be infinite.
  const Tensor some = masked_fill(powers, none, 1);
  return masked_fill(p == 2 ? sqrt(some) : pow(some, 1 / p), none, 0);
}

namespace {

constexpr std::string_view kMultiplied = "and it would multiply them";

}  // namespace

Tensor prod(const Tensor& x, int dim, bool keepdim) {
  if (is_axis_of_scalar("prod", x, dim)) return prod(x);
  const int axis = ops::resolve_axis("prod", x.shape(), dim);
  check(is_floating(x.dtype()), "prod: input is {}, expected a floating type: cast() it", x);
  if (x.kind() == Kind::cut && x.cut().axis == axis) fail_across_batch("prod", x, kMultiplied);
  if (is_half_dtype(x.dtype())) return cast(prod(cast(x, DType::f32), axis, keepdim), x.dtype());
  if (x.size(axis) == 0) return sum(x, axis, keepdim) + 1;
  // Halves are multiplied until one element is left. Derivatives then need no quotient, which a factor of 0 would not
  // have.
  Tensor y = x;
  while (y.size(axis) > 1) {
    const std::int64_t half = y.size(axis) / 2;
    const Tensor pairs = narrow(y, axis, 0, half) * narrow(y, axis, half, half);
    y = y.size(axis) % 2 == 0 ? pairs : cat({pairs, narrow(y, axis, 2 * half, 1)}, axis);
  }
  return keepdim ? y : squeeze(y, axis);
}

Tensor prod(const Tensor& x) {
  check(x.defined(), "prod: undefined tensor");
  if (x.kind() == Kind::cut) fail_across_batch("prod", x, kMultiplied);
  return prod(x.reshape({x.numel()}), 0);
}

}  // namespace lockstep
