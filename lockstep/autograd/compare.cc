// Comparisons, where(), masked_fill(), and logical functions of masks.
#include "lockstep/autograd/compare.h"

#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/promote.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/autograd/unary.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

// The name of the kernel's comparison: "gt" is "lt" of exchanged operands.
std::string_view kind_of(CompareOp op) { return kCompareNames[static_cast<std::size_t>(op)]; }

Tensor compare(std::string_view name, CompareOp op, const Tensor& left, const Tensor& right) {
  NoGradGuard no_grad;
  const auto [a, b] = promoted(left, right);
  const auto part = [op, name](const Arrays& in) -> Lifted { return {ops::compare(op, in[0], in[1], name), nullptr}; };
  return lift(name, place_broadcast(name, {a, b}), {a, b}, part, [&] { return OpTraits{kind_of(op)}; });
}

// With `exchanged`: op(b, a).
Tensor compare(std::string_view name, CompareOp op, const Tensor& a, const Scalar& b, bool exchanged = false) {
  NoGradGuard no_grad;
  const auto part = [=](const Arrays& in) -> Lifted { return {ops::compare_with(op, in[0], b, exchanged), nullptr}; };
  return lift(name, place_as(name, a), {a}, part, [&] {
    return OpTraits{kind_of(op), {{"value", b}, {"exchanged", std::int64_t{exchanged}}}};
  });
}

// An undefined a or b stands for `value`.
Tensor choose(std::string_view name, const Tensor& condition, const Tensor& a, const Tensor& b, const Scalar& value) {
  if (!a.defined() || !b.defined()) ops::check_holds(name, a.defined() ? a.dtype() : b.dtype(), value);
  const auto part = [=](const Arrays& in) -> Lifted {
    const Array scalar =
        in[1].defined() && in[2].defined() ? Array() : ops::scalar_like(in[1].defined() ? in[1] : in[2], value);
    const Array &x = in[1].defined() ? in[1] : scalar, &z = in[2].defined() ? in[2] : scalar;
    return {ops::where(in[0], x, z),
            [condition = SavedArray(in[0]), x_shape = x.shape(), z_shape = z.shape()](const PartPass& p,
                                                                                      const Array& dy) -> Arrays {
              const Array zero = ops::scalar_like(dy, 0);
              Array dx, dz;
              if (p.needs(1)) dx = ops::sum_to(ops::where(condition.get(p.name()), dy, zero), x_shape);
              if (p.needs(2)) dz = ops::sum_to(ops::where(condition.get(p.name()), zero, dy), z_shape);
              return {Array(), dx, dz};
            }};
  };
  return lift("where", place_broadcast("where", {condition, a, b}), {condition, a, b}, part, [&] {
    return OpTraits{{}, {{"value", value}}};
  });
}

Tensor holds(std::string_view name, const Tensor& x) { return compare(name, CompareOp::ne, x, 0); }

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare("eq", CompareOp::eq, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare("ne", CompareOp::ne, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare("lt", CompareOp::lt, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return compare("le", CompareOp::le, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare("gt", CompareOp::lt, b, a); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare("ge", CompareOp::le, b, a); }
Tensor eq(const Tensor& a, const Scalar& b) { return compare("eq", CompareOp::eq, a, b); }
Tensor ne(const Tensor& a, const Scalar& b) { return compare("ne", CompareOp::ne, a, b); }
Tensor lt(const Tensor& a, const Scalar& b) { return compare("lt", CompareOp::lt, a, b); }
Tensor le(const Tensor& a, const Scalar& b) { return compare("le", CompareOp::le, a, b); }
Tensor gt(const Tensor& a, const Scalar& b) { return compare("gt", CompareOp::lt, a, b, true); }
Tensor ge(const Tensor& a, const Scalar& b) { return compare("ge", CompareOp::le, a, b, true); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check(a.defined() && b.defined(), "where: an input is undefined");
  const auto [x, y] = promoted(a, b);
  return choose("where", condition, x, y, 0);
}
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b) {
  check(a.defined(), "where: an input is undefined");
  return choose("where", condition, a, {}, b);
}
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b) {
  check(b.defined(), "where: an input is undefined");
  return choose("where", condition, {}, b, a);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value) {
  check(x.defined(), "masked_fill: an input is undefined");
  return choose("masked_fill", mask, {}, x, value);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  check(x.defined() && value.defined(), "masked_fill: an input is undefined");
  check(value.numel() == 1 && value.shape().dim() <= 1, "masked_fill: the value is {}, expected one element",
        value.shape());
  return choose("masked_fill", mask, value.shape().dim() == 0 ? value : value.reshape({}), x, 0);
}

Tensor isnan(const Tensor& x) { return compare("isnan", CompareOp::ne, x, x); }
Tensor isinf(const Tensor& x) {
  check(x.defined(), "isinf: undefined tensor");
  return is_floating(x.dtype()) ? eq(abs(x.detach()), std::numeric_limits<double>::infinity()) : ne(x, x);
}
Tensor isfinite(const Tensor& x) {
  check(x.defined(), "isfinite: undefined tensor");
  return is_floating(x.dtype()) ? lt(abs(x.detach()), std::numeric_limits<double>::infinity()) : eq(x, x);
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  return where(holds("logical_and", a), holds("logical_and", b), 0.0);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return where(holds("logical_or", a), 1.0, holds("logical_or", b));
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return compare("logical_xor", CompareOp::ne, holds("logical_xor", a), holds("logical_xor", b));
}
Tensor logical_not(const Tensor& x) { return compare("logical_not", CompareOp::eq, x, 0); }

Tensor operator~(const Tensor& x) {
  check(x.defined() && !is_floating(x.dtype()), "operator ~: {}, expected bool or whole numbers", x);
  return x.dtype() == DType::boolean ? logical_not(x) : affine(x, -1, -1);
}
Tensor operator!(const Tensor& x) { return logical_not(x); }

bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && (a.numel() == 0 || all(eq(a, b)).item() != 0);
}

}  // namespace lockstep
