#include "lockstep/ops/elementwise.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

// Two operands that broadcast to `shape`: b in a's layout where the shapes are equal, both plain otherwise.
struct Operands {
  Array a, b;
  Shape shape;

  Operands(std::string_view what, const Array& left, const Array& right) {
    check_defined(what, left);
    check_defined(what, right);
    check(left.dtype() == right.dtype(),
          "{}: {} and {}, expected one type: convert one of them, as in x.to(DType::f32)", what, left, right);
    const bool same = left.shape() == right.shape();
    a = same ? left : to_layout(left, Layout::plain);
    b = to_layout(right, a.layout());
    shape = same ? a.shape() : broadcast_shape(what, a.shape(), b.shape());
  }
};

// The same memory with another type of the same size. Kernels take bools as u8, 0 and 1.
Array retyped(const Array& x, DType dtype) {
  View view = x.view();
  view.dtype = dtype;
  return Array(x.storage(), view).with_shard(x.shard());
}
bool is_truth(const Array& x) { return x.defined() && x.dtype() == DType::boolean; }

}  // namespace

Shape broadcast_shape(std::string_view what, const Shape& a, const Shape& b) {
  const Shape& longer = a.dim() >= b.dim() ? a : b;
  const Shape& other = a.dim() >= b.dim() ? b : a;
  Shape out = longer;
  for (int i = 1; i <= other.dim(); ++i) {
    if (other[-i] == out[-i] || other[-i] == 1) continue;
    check(out[-i] == 1, "{}: shapes {} and {} do not broadcast", what, a, b);
    out[-i] = other[-i];
  }
  return out;
}

Array unary(const Unary& op, const Array& x) {
  check_defined(name(op.op), x);
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type: cast() it", name(op.op),
        lockstep::name(x.dtype()));
  Array y = empty_like(x);
  launch(name(op.op), {x}, {y}, kernels::Unary{op, x.view(), y.view()});
  return y;
}

Array unary_backward(const Unary& op, const Array& saved, const Array& dy) {
  check_same(name(op.op), saved, dy);
  Array g = to_layout(dy, saved.layout());
  Array dx = empty_like(saved);
  launch(name(op.op), {saved, g}, {dx}, kernels::UnaryBackward{op, saved.view(), g.view(), dx.view()});
  return dx;
}

Array binary(BinaryOp op, const Array& a, const Array& b) {
  if (is_bitwise(op) && is_truth(a) && is_truth(b)) {
    return retyped(binary(op, retyped(a, DType::u8), retyped(b, DType::u8)), DType::boolean);
  }
  const Operands in(name(op), a, b);
  const bool integers = (a.dtype() == DType::i64 || a.dtype() == DType::u8) && takes_integers(op);
  check(integers || (is_floating(a.dtype()) && !is_bitwise(op)), "{}: inputs are {}, expected {}: cast() them",
        name(op), lockstep::name(a.dtype()), is_bitwise(op) ? "bool or whole numbers" : "a floating type");
  Array out = empty(in.shape, a.dtype(), a.device(), in.a.layout());
  launch(name(op), {in.a, in.b}, {out}, kernels::Binary{op, in.a.view(), in.b.view(), out.view()});
  return out;
}

Array compare(CompareOp op, const Array& a, const Array& b, std::string_view what) {
  if (is_truth(a) && is_truth(b)) return compare(op, retyped(a, DType::u8), retyped(b, DType::u8), what);
  const Operands in(what.empty() ? name(op) : what, a, b);
  Array out = empty(in.shape, DType::boolean, a.device(), in.a.layout());
  launch(name(op), {in.a, in.b}, {out}, kernels::Compare{op, in.a.view(), in.b.view(), out.view()});
  return out;
}

namespace {

// A comparison with a number, for whole numbers: a comparison with a `bound` of their type, or a constant, `always`.
struct WholeComparison {
  CompareOp op;
  std::int64_t bound = 0;
  std::optional<bool> always = {};
};

// A fraction lies between two whole numbers, and a bound beyond the type's range is on one side of all its numbers.
template <typename T>
WholeComparison whole_comparison(CompareOp op, const Scalar& scalar, bool exchanged) {
  const bool equality = op == CompareOp::eq || op == CompareOp::ne;
  if (scalar.is_whole()) {
    const auto number = scalar.to<std::int64_t>();
    if (std::in_range<T>(number)) return {op, number};
    return {op, 0, equality ? op == CompareOp::ne : (number > 0) != exchanged};
  }
  const auto number = scalar.to<double>();
  if (std::isnan(number)) return {op, 0, op == CompareOp::ne};
  const double least = static_cast<double>(std::numeric_limits<T>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);  // the largest number plus 1
  if (equality) {
    const bool holds = number == std::trunc(number) && number >= least && number < beyond;
    return holds ? WholeComparison{op, static_cast<std::int64_t>(number)} : WholeComparison{op, 0, op == CompareOp::ne};
  }
  // x < 1.5 is x < 2, x <= 1.5 is x <= 1; 1.5 < x is 1 < x, 1.5 <= x is 2 <= x.
  const double bound = (op == CompareOp::lt) != exchanged ? std::ceil(number) : std::floor(number);
  if (bound >= beyond) return {op, 0, !exchanged};
  if (bound < least) return {op, 0, exchanged};
  return {op, static_cast<std::int64_t>(bound)};
}

}  // namespace

Array compare_with(CompareOp op, const Array& x, const Scalar& number, bool exchanged) {
  check_defined(name(op), x);
  if (is_truth(x)) return compare_with(op, retyped(x, DType::u8), number, exchanged);
  Scalar bound = number;
  if (!is_floating(x.dtype())) {
    const WholeComparison whole = x.dtype() == DType::u8 ? whole_comparison<std::uint8_t>(op, number, exchanged)
                                                         : whole_comparison<std::int64_t>(op, number, exchanged);
    if (whole.always) {
      Array out = empty(x.shape(), DType::boolean, x.device(), x.layout());
      fill_(out, *whole.always ? 1 : 0);
      return out;
    }
    bound = whole.bound;
  }
  const Array scalar = scalar_like(x, bound);
  return exchanged ? compare(op, scalar, x) : compare(op, x, scalar);
}

Array where(const Array& condition, const Array& a, const Array& b) {
  check_defined("where", condition);
  check(is_mask(condition.dtype()), "where: the condition is {}, expected bool, as comparisons return, or u8",
        lockstep::name(condition.dtype()));
  const Operands in("where", a, b);
  const Shape shape = broadcast_shape("where", condition.shape(), in.shape);
  const Array plain = to_layout(condition, Layout::plain), x = to_layout(a, Layout::plain),
              z = to_layout(b, Layout::plain);
  Array out = empty(shape, a.dtype(), a.device());
  launch("where", {plain, x, z}, {out}, kernels::Where{plain.view(), x.view(), z.view(), out.view()});
  return out;
}

namespace {

Array integer_affine(const Array& x, const Scalar& scale, const Scalar& shift) {
  for (const Scalar& number : {scale, shift}) {
    check(number.fits_int64(),
          "affine: {} with the number {}, expected a whole one: cast() the tensor to a floating type",
          lockstep::name(x.dtype()), number);
  }
  // u8 counts modulo 256.
  const auto element = [&](const Scalar& number) {
    const auto whole = number.to<std::int64_t>();
    return scalar_like(x, x.dtype() == DType::u8 ? Scalar(static_cast<std::uint8_t>(whole)) : Scalar(whole));
  };
  const Array scaled = scale == 1 ? x : binary(BinaryOp::multiply, x, element(scale));
  return shift == 0 ? scaled : binary(BinaryOp::add, scaled, element(shift));
}

}  // namespace

Array affine(const Array& x, const Scalar& scale, const Scalar& shift) {
  check_defined("affine", x);
  if (x.dtype() == DType::i64 || x.dtype() == DType::u8) return integer_affine(x, scale, shift);
  check(is_floating(x.dtype()), "affine: input is {}, expected a floating type: cast() it", lockstep::name(x.dtype()));
  Array y = empty_like(x);
  launch("affine", {x}, {y}, kernels::Affine{scale.to<double>(), shift.to<double>(), x.view(), y.view()});
  return y;
}

void check_holds(std::string_view what, DType dtype, const Scalar& scalar) {
  const auto value = scalar.to<double>();
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, bool>) {
      return;
    } else if constexpr (std::is_integral_v<T>) {
      check(scalar.fits_int64() && std::in_range<T>(scalar.to<std::int64_t>()),
            "{}: {} in a tensor of {}, expected a whole number of its range: cast() the tensor", what, scalar,
            lockstep::name(dtype));
    } else if constexpr (!std::is_same_v<T, double>) {
      check(std::isinf(value) || !std::isinf(static_cast<float>(T(static_cast<float>(value)))),
            "{}: {} is beyond the range of {}", what, value, lockstep::name(dtype));
    }
  });
}

void fill_(const Array& y, const Scalar& value) { launch("fill", {}, {y}, kernels::Fill{value, y.view()}); }

Array full(const Shape& shape, const Scalar& value, DType dtype, Device device) {
  Array y = empty(shape, dtype, device);
  fill_(y, value);
  return y;
}

Array scalar_like(const Array& x, const Scalar& value) { return full({}, value, x.dtype(), x.device()); }

Array arange(std::int64_t count, DType dtype, Device device, const Scalar& start, const Scalar& step) {
  Array y = empty({count}, dtype, device);
  launch("arange", {}, {y}, kernels::Arange{start, step, y.view()});
  return y;
}

void add_(const Array& y, const Array& x) {
  check_same("add", y, x);
  Array z = to_layout(x, y.layout());
  launch("add", {y, z}, {y}, kernels::Binary{BinaryOp::add, y.view(), z.view(), y.view()});
}

}  // namespace lockstep::ops
