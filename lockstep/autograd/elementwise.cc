#include "lockstep/autograd/elementwise.h"

#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/promote.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/autograd/unary.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

// The gradient of a in max(a, b), and of b in max(b, a): half of dy where they are equal, as in PyTorch.
Array gradient_of_larger(const Array& dy, const Array& larger, const Array& other) {
  const Array zero = ops::scalar_like(dy, 0);
  const Array shared = ops::where(ops::compare(CompareOp::eq, larger, other), ops::affine(dy, 0.5, 0), dy);
  return ops::where(ops::compare(CompareOp::lt, larger, other), zero, shared);
}

// The gradient of a in a^b: b a^(b - 1), 0 for b = 0.
Array gradient_of_base(const Array& dy, const Array& a, const Array& b) {
  const Array slope = ops::binary(BinaryOp::multiply, b, ops::binary(BinaryOp::pow, a, ops::affine(b, 1, -1)));
  const Array zero = ops::scalar_like(dy, 0);
  return ops::where(ops::compare(CompareOp::eq, b, zero), zero, ops::binary(BinaryOp::multiply, dy, slope));
}

// The gradient of b in a^b: a^b log(a), 0 for a = 0 and b >= 0.
Array gradient_of_exponent(const Array& dy, const Array& a, const Array& b) {
  const Array slope = ops::binary(BinaryOp::multiply, ops::binary(BinaryOp::pow, a, b), ops::unary(UnaryOp::log, a));
  const Array zero = ops::scalar_like(dy, 0);
  const Array flat =
      ops::binary(BinaryOp::multiply, ops::convert(ops::compare(CompareOp::eq, a, zero), dy.dtype(), Layout::plain),
                  ops::convert(ops::compare(CompareOp::le, zero, b), dy.dtype(), Layout::plain));
  return ops::where(ops::compare(CompareOp::ne, flat, zero), zero, ops::binary(BinaryOp::multiply, dy, slope));
}

// The gradient of b in a / b: -dy (a / b) / b, in f32 for half types. The product b b could be 0 or infinite where the
// gradient is neither.
Array gradient_of_divisor(Array dy, Array a, Array b) {
  for (Array* x : {&dy, &a, &b}) {
    if (is_half_dtype(x->dtype())) *x = ops::convert(*x, DType::f32, x->layout());
  }
  const Array ratio = ops::binary(BinaryOp::divide, ops::binary(BinaryOp::divide, a, b), b);
  return ops::binary(BinaryOp::multiply, ops::unary(UnaryOp::negate, dy), ratio);
}

// The gradient of y in atan2(y, x): x / (x^2 + y^2).
Array gradient_of_angle(const Array& dy, const Array& y, const Array& x) {
  const Array square = ops::binary(BinaryOp::add, ops::unary(UnaryOp::square, x), ops::unary(UnaryOp::square, y));
  return ops::binary(BinaryOp::multiply, dy, ops::binary(BinaryOp::divide, x, square));
}

// A gradient of 0, in the result's shape.
Array no_gradient(const Array& dy) { return ops::full(dy.shape(), 0, dy.dtype(), dy.device()); }

// The operands' gradients before they are summed to the operands' shapes.
Array gradient_of_left(BinaryOp op, const Array& dy, const Array& a, const Array& b) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::subtract:
    case BinaryOp::remainder: return dy;
    case BinaryOp::multiply:
    case BinaryOp::divide: return ops::binary(op, dy, b);
    case BinaryOp::maximum: return gradient_of_larger(dy, a, b);
    case BinaryOp::minimum:
      return gradient_of_larger(dy, ops::unary(UnaryOp::negate, a), ops::unary(UnaryOp::negate, b));
    case BinaryOp::pow: return gradient_of_base(dy, a, b);
    case BinaryOp::atan2: return gradient_of_angle(dy, a, b);
    case BinaryOp::divide_trunc:
    case BinaryOp::divide_floor: return no_gradient(dy);
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor: break;  // whole numbers have no gradient
  }
  return {};
}

Array gradient_of_right(BinaryOp op, const Array& dy, const Array& a, const Array& b) {
  switch (op) {
    case BinaryOp::add: return dy;
    case BinaryOp::subtract: return ops::unary(UnaryOp::negate, dy);
    case BinaryOp::multiply: return ops::binary(op, dy, a);
    case BinaryOp::divide: return gradient_of_divisor(dy, a, b);
    case BinaryOp::maximum:
    case BinaryOp::minimum: return gradient_of_left(op, dy, b, a);
    case BinaryOp::pow: return gradient_of_exponent(dy, a, b);
    case BinaryOp::atan2: return ops::unary(UnaryOp::negate, gradient_of_angle(dy, b, a));
    case BinaryOp::divide_trunc:
    case BinaryOp::divide_floor: return no_gradient(dy);
    case BinaryOp::remainder:
      return ops::unary(UnaryOp::negate,
                        ops::binary(BinaryOp::multiply, dy, ops::binary(BinaryOp::divide_floor, a, b)));
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor: break;
  }
  return {};
}

bool is_truth(const Tensor& x) { return x.defined() && x.dtype() == DType::boolean; }

// The operation on bools: a sum is true if either operand is, a product if both are.
BinaryOp of_truth(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::maximum: return BinaryOp::bit_or;
    case BinaryOp::multiply:
    case BinaryOp::minimum: return BinaryOp::bit_and;
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor: return op;
    default: break;
  }
  fail("{}: both operands are bool, expected a number: cast() one{}", ops::name(op),
       op == BinaryOp::subtract ? ", or use ^ or logical_xor()" : "");
}

Tensor binary(BinaryOp given, const Tensor& left, const Tensor& right) {
  const auto [a, b] = promoted(left, right);
  const BinaryOp op = is_truth(a) && is_truth(b) ? of_truth(given) : given;
  const bool product = op == BinaryOp::multiply, linear = op == BinaryOp::add || op == BinaryOp::subtract ||
                                                          op == BinaryOp::divide_trunc || op == BinaryOp::divide_floor;
  const bool saves_a = !linear && (b.requires_grad() || (!product && op != BinaryOp::divide));
  const bool saves_b = !linear && (a.requires_grad() || !product);
  return lift(ops::name(op), place_broadcast(ops::name(op), {a, b}), {a, b}, [=](const Arrays& in) -> Lifted {
    Array y = ops::binary(op, in[0], in[1]);
    return {y,
            [op, x = SavedArray(saves_a, in[0]), z = SavedArray(saves_b, in[1]), a_shape = in[0].shape(),
             b_shape = in[1].shape()](const PartPass& p, const Array& dy) -> Arrays {
              const Array &left = x.get(p.name()), &right = z.get(p.name());
              Array da, db;
              if (p.needs(0)) da = ops::sum_to(gradient_of_left(op, dy, left, right), a_shape);
              if (p.needs(1)) {
                const Array sum = ops::sum_to(gradient_of_right(op, dy, left, right), b_shape);
                db = ops::convert(sum, dy.dtype(), sum.layout());
              }
              return {da, db};
            }};
  });
}

// Applies `op` to floating numbers; whole numbers stay the same.
Tensor rounded_by(UnaryOp op, const Tensor& x) {
  check(x.defined(), "{}: undefined tensor", ops::name(op));
  return is_floating(x.dtype()) ? unary(op, x) : clone(x);
}

Tensor filled_like(std::string_view name, const Tensor& x, const Scalar& value) {
  NoGradGuard no_grad;
  const auto part = [=](const Arrays& in) -> Lifted {
    ops::check_defined(name, in[0]);
    Array y = ops::empty_like(in[0]);
    ops::fill_(y, value);
    return {y, nullptr};
  };
  return lift(name, place_as(name, x), {x}, part, [&] { return OpTraits{"fill", {{"value", value}}}; });
}

// `number` as the left operand of an operation.
Tensor left_operand(std::string_view name, const Scalar& number, const Tensor& right) {
  check(!right.defined() || is_floating(right.dtype()) || number.is_whole(),
        "{}: {} with {}, expected a floating type: cast() it", name, number, right);
  return filled_like(name, right, number);
}

// A function whose result for whole numbers is f32.
Tensor floating_unary(UnaryOp op, const Tensor& x) { return unary(op, promoted_to_floating(x)); }
Tensor floating_binary(BinaryOp op, const Tensor& left, const Tensor& right) {
  // Whole numbers beside f64 become f64 without being rounded to f32 first.
  const auto [a, b] = promoted(left, right);
  return binary(op, promoted_to_floating(a), promoted_to_floating(b));
}

// i64 or u8.
bool is_whole(const Tensor& x) { return x.defined() && (x.dtype() == DType::i64 || x.dtype() == DType::u8); }
bool are_truth(const Tensor& x, const Scalar& number) { return is_truth(x) && number.is_bool(); }

// `number` as the divisor of `left`.
Tensor right_operand(std::string_view name, const Tensor& left, const Scalar& number) {
  check(left.defined(), "{}: undefined tensor", name);
  ops::check_holds(name, left.dtype(), number);
  check(is_floating(left.dtype()) || !(number == 0), "{}: {} by 0, expected a number that is not 0", name, left);
  return filled_like(name, left, number);
}

}  // namespace

Tensor unary(const Unary& op, const Tensor& x) {
  const auto part = [op](const Arrays& in) -> Lifted {
    Array y = ops::unary(op, in[0]);
    return {
        y,
        [op, saved = SavedArray(unary_saves_output(op.op) ? y : in[0])](const PartPass& p, const Array& dy) -> Arrays {
          return {ops::unary_backward(op, saved.get(p.name()), dy)};
        }};
  };
  return lift(ops::name(op.op), place_as(ops::name(op.op), x), {x}, part, [&] {
    return OpTraits{{}, {{"a", op.a}, {"b", op.b}}};
  });
}

Tensor affine(const Tensor& given, const Scalar& scale, const Scalar& shift) {
  const Tensor x = counted(given);
  const auto part = [=](const Arrays& in) -> Lifted {
    return {ops::affine(in[0], scale, shift),
            [scale](const PartPass&, const Array& dy) -> Arrays { return {ops::affine(dy, scale, 0)}; }};
  };
  return lift("affine", place_as("affine", x), {x}, part, [&] {
    return OpTraits{{}, {{"scale", scale}, {"shift", shift}}};
  });
}

Tensor negate(const Tensor& x) { return unary(UnaryOp::negate, x); }
Tensor exp(const Tensor& x) { return floating_unary(UnaryOp::exp, x); }
Tensor log(const Tensor& x) { return floating_unary(UnaryOp::log, x); }
Tensor log1p(const Tensor& x) { return floating_unary(UnaryOp::log1p, x); }
Tensor expm1(const Tensor& x) { return floating_unary(UnaryOp::expm1, x); }
Tensor log2(const Tensor& x) { return floating_unary(UnaryOp::log2, x); }
Tensor log10(const Tensor& x) { return floating_unary(UnaryOp::log10, x); }
Tensor sqrt(const Tensor& x) { return floating_unary(UnaryOp::sqrt, x); }
Tensor square(const Tensor& given) {
  const Tensor x = counted(given);
  return is_whole(x) ? x * x : unary(UnaryOp::square, x);
}
Tensor abs(const Tensor& x) {
  if (!is_whole(x)) return unary(UnaryOp::abs, x);
  return x.dtype() == DType::u8 ? clone(x) : maximum(x, -x);
}
Tensor sign(const Tensor& x) { return unary(UnaryOp::sign, x); }
Tensor reciprocal(const Tensor& x) { return floating_unary(UnaryOp::reciprocal, x); }
Tensor rsqrt(const Tensor& x) { return floating_unary(UnaryOp::rsqrt, x); }
Tensor sin(const Tensor& x) { return floating_unary(UnaryOp::sin, x); }
Tensor cos(const Tensor& x) { return floating_unary(UnaryOp::cos, x); }
Tensor tan(const Tensor& x) { return floating_unary(UnaryOp::tan, x); }
Tensor erf(const Tensor& x) { return floating_unary(UnaryOp::erf, x); }
Tensor atan2(const Tensor& y, const Tensor& x) { return floating_binary(BinaryOp::atan2, y, x); }
Tensor floor(const Tensor& x) { return rounded_by(UnaryOp::floor, x); }
Tensor ceil(const Tensor& x) { return rounded_by(UnaryOp::ceil, x); }
Tensor round(const Tensor& x) { return rounded_by(UnaryOp::round, x); }
Tensor trunc(const Tensor& x) { return rounded_by(UnaryOp::trunc, x); }
Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  check(x.defined(), "nan_to_num: undefined tensor");
  if (!is_floating(x.dtype())) return clone(x);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double most = x.dtype() == DType::f64    ? std::numeric_limits<double>::max()
                      : x.dtype() == DType::f16  ? 65504
                      : x.dtype() == DType::bf16 ? 0x1.fep127
                                                 : static_cast<double>(std::numeric_limits<float>::max());
  const Tensor numbers = masked_fill(x, isnan(x), nan);
  return masked_fill(masked_fill(numbers, eq(x, kInfinity), posinf.value_or(most)), eq(x, -kInfinity),
                     neginf.value_or(-most));
}
Tensor clamp(const Tensor& given, std::optional<Scalar> min, std::optional<Scalar> max) {
  check(given.defined(), "clamp: undefined tensor");
  const Tensor x = counted(given);
  check(min || max, "clamp: expected min, max, or both, found neither");
  if (!is_floating(x.dtype())) {
    const auto bound = [&](const Scalar& number) {
      ops::check_holds("clamp", x.dtype(), number);
      return filled_like("clamp", x, number);
    };
    const Tensor raised = min ? maximum(x, bound(*min)) : x;
    return max ? minimum(raised, bound(*max)) : raised;
  }
  const auto is_nan = [](const std::optional<Scalar>& bound) { return bound && std::isnan(bound->to<double>()); };
  if (is_nan(min) || is_nan(max)) {
    const auto bound = [&](const std::optional<Scalar>& number) { return number ? full_like(x, *number) : Tensor(); };
    return clamp(x, bound(min), bound(max));
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return unary({UnaryOp::clamp, min.value_or(-kInfinity).to<double>(), max.value_or(kInfinity).to<double>()}, x);
}
// A bound that is NaN makes the result NaN.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) {
  check(x.defined(), "clamp: undefined tensor");
  check(min.defined() || max.defined(), "clamp: expected min, max, or both, found neither");
  const auto chosen = [](const Tensor& mask, const Tensor& bound) {
    return is_floating(bound.dtype()) ? logical_or(mask, isnan(bound)) : mask;
  };
  Tensor y = x;
  if (min.defined()) y = where(chosen(lt(y, min), min), min, y);
  return max.defined() ? where(chosen(gt(y, max), max), max, y) : y;
}
Tensor pow(const Tensor& given, const Scalar& exponent) {
  const Tensor x = counted(given);
  if (!x.defined() || is_floating(x.dtype()) || !exponent.is_whole())
    return unary({UnaryOp::pow, exponent.to<double>()}, x);
  check(exponent.to<std::int64_t>() >= 0, "pow: a whole number to the power of {}, expected a power of at least 0",
        exponent);
  return pow(x, filled_like("pow", x, exponent));
}
Tensor pow(const Tensor& x, const Tensor& exponent) { return binary(BinaryOp::pow, x, exponent); }
Tensor pow(const Scalar& base, const Tensor& exponent) {
  const Tensor power = counted(exponent);
  return pow(left_operand("pow", base, power), power);
}
Tensor maximum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::minimum, a, b); }
Tensor operator+(const Tensor& a, const Tensor& b) { return binary(BinaryOp::add, a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return binary(BinaryOp::subtract, a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return binary(BinaryOp::multiply, a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return floating_binary(BinaryOp::divide, a, b); }
Tensor operator+(const Tensor& a, const Scalar& b) { return are_truth(a, b) ? a + full_like(a, b) : affine(a, 1, b); }
// -0 plus a shift stays -0 only if the shift is -0, too, so a - 0 adds -0.
Tensor operator-(const Tensor& a, const Scalar& b) {
  if (are_truth(a, b)) return a - full_like(a, b);
  return affine(a, 1, is_floating(a.dtype()) ? Scalar(-b.to<double>()) : -1 * b);
}
Tensor operator*(const Tensor& a, const Scalar& b) {
  return are_truth(a, b) ? a * full_like(a, b) : affine(a, b, is_floating(a.dtype()) ? Scalar(-0.0) : Scalar(0));
}
Tensor operator/(const Tensor& a, const Scalar& b) {
  const Unary op{UnaryOp::divide, b.to<double>()};
  const Tensor x = promoted_to_floating(a);
  const auto part = [op](const Arrays& in) -> Lifted {
    return {ops::unary(op, in[0]), [op](const PartPass&, const Array& dy) -> Arrays { return {ops::unary(op, dy)}; }};
  };
  return lift("divide", place_as("divide", x), {x}, part, [&] { return OpTraits{"divide_by", {{"a", op.a}}}; });
}
Tensor operator+(const Scalar& a, const Tensor& b) { return b + a; }
Tensor operator-(const Scalar& a, const Tensor& b) { return are_truth(b, a) ? full_like(b, a) - b : affine(b, -1, a); }
Tensor operator*(const Scalar& a, const Tensor& b) { return b * a; }
Tensor operator/(const Scalar& a, const Tensor& b) {
  const Tensor x = promoted_to_floating(b);
  return left_operand("divide", a, x) / x;
}
Tensor operator-(const Tensor& a) { return is_whole(a) ? affine(a, -1, 0) : negate(a); }
Tensor operator&(const Tensor& a, const Tensor& b) { return binary(BinaryOp::bit_and, a, b); }
Tensor operator|(const Tensor& a, const Tensor& b) { return binary(BinaryOp::bit_or, a, b); }
Tensor operator^(const Tensor& a, const Tensor& b) { return binary(BinaryOp::bit_xor, a, b); }

Tensor div(const Tensor& a, const Tensor& b, const DivOptions& options) {
  switch (options.rounding_mode) {
    case Rounding::none: return a / b;
    case Rounding::trunc: return binary(BinaryOp::divide_trunc, a, b);
    case Rounding::floor: return binary(BinaryOp::divide_floor, a, b);
  }
  fail("div: unknown rounding mode {}", static_cast<int>(options.rounding_mode));
}
Tensor div(const Tensor& a, const Scalar& b, const DivOptions& options) {
  if (options.rounding_mode == Rounding::none) return a / b;
  const Tensor x = counted(a);
  return div(x, right_operand("div", x, b), options);
}
Tensor remainder(const Tensor& a, const Tensor& b) { return binary(BinaryOp::remainder, a, b); }
Tensor remainder(const Tensor& a, const Scalar& b) {
  const Tensor x = counted(a);
  return remainder(x, right_operand("remainder", x, b));
}

namespace {

// alpha * b in the type to which a and b are promoted.
Tensor scaled_beside(const Tensor& a, const Tensor& b, const Scalar& alpha) { return promoted(a, b).second * alpha; }

// The factor of a sum of bools, which is a bool.
bool truth_of(const Scalar& alpha) {
  check(alpha.is_whole(), "add: alpha is {}, expected a whole number for bools", alpha);
  return !(alpha == 0);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_truth(a) && is_truth(b)) return truth_of(alpha) ? a + b : a + b * false;
  return alpha == 1 ? a + b : a + scaled_beside(a, b, alpha);
}
Tensor add(const Tensor& a, const Scalar& b, const Scalar& alpha) {
  return a + (are_truth(a, b) ? Scalar(truth_of(alpha) && !(b == 0)) : alpha * b);
}
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return alpha == 1 || (is_truth(a) && is_truth(b)) ? a - b : a - scaled_beside(a, b, alpha);
}
Tensor sub(const Tensor& a, const Scalar& b, const Scalar& alpha) { return a - (are_truth(a, b) ? b : alpha * b); }
Tensor mul(const Tensor& a, const Tensor& b) { return a * b; }
Tensor mul(const Tensor& a, const Scalar& b) { return a * b; }

Tensor kept_type(const Tensor& a, const Tensor& result) {
  check(
      result.dtype() == a.dtype() || (is_floating(a.dtype()) && is_floating(result.dtype())),
      "an operation in place on {}: the result is {}, expected {}: assign it to another tensor, or cast() the operand",
      a, name(result.dtype()), name(a.dtype()));
  return cast(result, a.dtype());
}

Tensor& assign_result(std::string_view what, Tensor& a, const Tensor& result) {
  check(result.shape() == a.shape(), "{}: the result is {}, expected the shape of {}", what, result.shape().str(), a);
  const Tensor kept = kept_type(a, result);
  const bool is_leaf = a->grad && !a->grad->node;
  if (!is_leaf && a->label.empty()) return a = kept;
  check(
      !grad_enabled() || !a.requires_grad(),
      "{}: {} is a leaf that requires a gradient, which a write in place would not record: expected a NoGradGuard, or "
      "a new tensor, y = x + 1",
      what, a);
  a.copy_from(kept);
  return a;
}

Tensor clone(const Tensor& x) {
  check(x.defined(), "clone: undefined tensor");
  return lift("clone", place_as("clone", x), {x}, [](const Arrays& in) -> Lifted {
    const Array y = ops::empty_like(in[0]);
    ops::copy_(in[0], y, {.non_blocking = true});
    return {y, [](const PartPass&, const Array& dy) -> Arrays { return {dy}; }};
  });
}

Tensor full_like(const Tensor& x, const Scalar& value) {
  check(x.defined(), "full_like: undefined tensor");
  ops::check_holds("full_like", x.dtype(), value);
  return filled_like("full_like", x, value);
}

}  // namespace lockstep
