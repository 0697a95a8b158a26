// Internal: the operations on single elements: their names, formulas, and derivatives. The cpu and cuda back ends share
// them. The reference back end has its own formulas, because it is the oracle.
//
// C is the type of the computation: float or double. Math has, as static members, the functions that each back end
// implements itself: exp, expm1, log, log1p, log2, log10, sin, cos, tan, tanh, sigmoid, erf, pow, atan2, normal_cdf,
// normal_pdf. Conditions select values instead of branching, so that CPU loops vectorize. Functions of the C library
// appear only where IEEE 754 defines every bit of their results: sqrt, floor, fmod, ...
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lockstep {

enum class UnaryOp {
  negate,
  exp,
  log,
  log1p,
  sqrt,
  square,
  abs,
  sign,
  reciprocal,
  rsqrt,
  sin,
  cos,
  relu,
  leaky_relu,
  elu,
  gelu,
  silu,
  softplus,
  sigmoid,
  tanh,
  clamp,
  pow,
  divide,
  floor,
  ceil,
  round,
  trunc,
  expm1,
  log2,
  log10,
  tan,
  erf
};
// Names in messages and timelines, in the order of UnaryOp.
inline constexpr auto kUnaryNames = std::to_array<std::string_view>(
    {"negate", "exp",   "log",        "log1p", "sqrt",  "square", "abs",      "sign",    "reciprocal", "rsqrt", "sin",
     "cos",    "relu",  "leaky_relu", "elu",   "gelu",  "silu",   "softplus", "sigmoid", "tanh",       "clamp", "pow",
     "divide", "floor", "ceil",       "round", "trunc", "expm1",  "log2",     "log10",   "tan",        "erf"});

enum class BinaryOp {
  add,
  subtract,
  multiply,
  divide,
  maximum,
  minimum,
  pow,
  atan2,
  divide_trunc,
  divide_floor,
  remainder,
  bit_and,
  bit_or,
  bit_xor
};
inline constexpr auto kBinaryNames =
    std::to_array<std::string_view>({"add", "subtract", "multiply", "divide", "maximum", "minimum", "pow", "atan2",
                                     "divide_trunc", "divide_floor", "remainder", "bit_and", "bit_or", "bit_xor"});

// Greater is less with exchanged operands.
enum class CompareOp { eq, ne, lt, le };
inline constexpr auto kCompareNames = std::to_array<std::string_view>({"eq", "ne", "lt", "le"});

// The constants a and b of an operation are those of Unary.
template <UnaryOp kOp, typename Math, typename C>
constexpr C formula(C x, [[maybe_unused]] C a, [[maybe_unused]] C b) {
  if constexpr (kOp == UnaryOp::negate) return -x;
  if constexpr (kOp == UnaryOp::exp) return Math::exp(x);
  if constexpr (kOp == UnaryOp::log) return Math::log(x);
  if constexpr (kOp == UnaryOp::log1p) {
    // 1 + x loses significant bits only near 0. Math::log1p need only handle x in [-0.5, 1].
    const C near = Math::log1p(x), far = Math::log(1 + x);
    return (x >= C(-0.5)) & (x <= 1) ? near : far;
  }
  if constexpr (kOp == UnaryOp::sqrt) return std::sqrt(x);
  if constexpr (kOp == UnaryOp::square) return x * x;
  if constexpr (kOp == UnaryOp::abs) return std::abs(x);
  if constexpr (kOp == UnaryOp::sign) return x > 0 ? C(1) : x < 0 ? C(-1) : x;  // 0 and NaN stay
  if constexpr (kOp == UnaryOp::reciprocal) return 1 / x;
  if constexpr (kOp == UnaryOp::rsqrt) return 1 / std::sqrt(x);
  if constexpr (kOp == UnaryOp::sin) return Math::sin(x);
  if constexpr (kOp == UnaryOp::cos) return Math::cos(x);
  if constexpr (kOp == UnaryOp::relu) return x <= 0 ? C(0) : x;  // NaN stays NaN
  if constexpr (kOp == UnaryOp::leaky_relu) return x > 0 ? x : a * x;
  if constexpr (kOp == UnaryOp::elu) {
    const C below = a * Math::expm1(x);
    return x > 0 ? x : below;
  }
  if constexpr (kOp == UnaryOp::gelu) return x * Math::normal_cdf(x);
  if constexpr (kOp == UnaryOp::silu) return x * Math::sigmoid(x);
  if constexpr (kOp == UnaryOp::softplus) {
    // log(1 + exp(z)) without an exp that overflows.
    const C z = a * x, y = ((z > 0 ? z : C(0)) + Math::log1p(Math::exp(-std::abs(z)))) / a;
    return z <= b ? y : x;  // NaN stays NaN
  }
  if constexpr (kOp == UnaryOp::sigmoid) return Math::sigmoid(x);
  if constexpr (kOp == UnaryOp::tanh) return Math::tanh(x);
  if constexpr (kOp == UnaryOp::clamp) {
    const C raised = x < a ? a : x;
    return raised > b ? b : raised;
  }
  if constexpr (kOp == UnaryOp::pow) return Math::pow(x, a);
  if constexpr (kOp == UnaryOp::divide) return x / a;
  if constexpr (kOp == UnaryOp::floor) return std::floor(x);
  if constexpr (kOp == UnaryOp::ceil) return std::ceil(x);
  if constexpr (kOp == UnaryOp::round) return std::rint(x);  // halves to even
  if constexpr (kOp == UnaryOp::trunc) return std::trunc(x);
  if constexpr (kOp == UnaryOp::expm1) {
    const C y = Math::expm1(x);
    return x == 0 ? x : y;  // -0.0 stays
  }
  if constexpr (kOp == UnaryOp::log2) return Math::log2(x);
  if constexpr (kOp == UnaryOp::log10) return Math::log10(x);
  if constexpr (kOp == UnaryOp::tan) {
    const C y = Math::tan(x);
    return x == 0 ? x : y;
  }
  if constexpr (kOp == UnaryOp::erf) return Math::erf(x);
}

// dy * op'. `saved` is the output where unary_saves_output(op), else the input.
template <UnaryOp kOp, typename Math, typename C>
constexpr C gradient(C saved, C dy, [[maybe_unused]] C a, [[maybe_unused]] C b) {
  if constexpr (kOp == UnaryOp::negate) return -dy;
  if constexpr (kOp == UnaryOp::exp) return dy * saved;
  if constexpr (kOp == UnaryOp::log) return dy / saved;
  if constexpr (kOp == UnaryOp::log1p) return dy / (1 + saved);
  if constexpr (kOp == UnaryOp::sqrt) return dy * C(0.5) / saved;
  if constexpr (kOp == UnaryOp::square) return dy * 2 * saved;
  if constexpr (kOp == UnaryOp::abs) return dy * (saved > 0 ? C(1) : saved < 0 ? C(-1) : C(0));
  if constexpr (kOp == UnaryOp::sign) return 0 * dy;
  if constexpr (kOp == UnaryOp::reciprocal) return -dy * (saved * saved);
  if constexpr (kOp == UnaryOp::rsqrt) return dy * (C(-0.5) * (saved * saved * saved));
  if constexpr (kOp == UnaryOp::sin) return dy * Math::cos(saved);
  if constexpr (kOp == UnaryOp::cos) return -dy * Math::sin(saved);
  if constexpr (kOp == UnaryOp::relu) return saved > 0 ? dy : C(0);
  if constexpr (kOp == UnaryOp::leaky_relu) return saved > 0 ? dy : dy * a;
  if constexpr (kOp == UnaryOp::elu) {
    const C below = dy * (a * Math::exp(saved));
    return saved > 0 ? dy : below;
  }
  if constexpr (kOp == UnaryOp::gelu) return dy * (Math::normal_cdf(saved) + saved * Math::normal_pdf(saved));
  if constexpr (kOp == UnaryOp::silu) {
    const C s = Math::sigmoid(saved);
    return dy * (s * (1 + saved * (1 - s)));
  }
  if constexpr (kOp == UnaryOp::softplus) {
    const C z = a * saved, slope = Math::sigmoid(z);
    return z > b ? dy : dy * slope;
  }
  if constexpr (kOp == UnaryOp::sigmoid) return dy * saved * (1 - saved);
  if constexpr (kOp == UnaryOp::tanh) return dy * (1 - saved * saved);
  if constexpr (kOp == UnaryOp::clamp) return (saved >= a) & (saved <= b) ? dy : C(0);
  if constexpr (kOp == UnaryOp::pow) {
    const C slope = a * Math::pow(saved, a - 1);
    return a == 0 ? C(0) : dy * slope;
  }
  if constexpr (kOp == UnaryOp::divide) return dy / a;
  if constexpr (kOp == UnaryOp::floor || kOp == UnaryOp::ceil || kOp == UnaryOp::round || kOp == UnaryOp::trunc)
    return C(0);
  if constexpr (kOp == UnaryOp::expm1) return dy * (saved + 1);
  if constexpr (kOp == UnaryOp::log2) return dy / (saved * C(0.69314718055994530942));
  if constexpr (kOp == UnaryOp::log10) return dy / (saved * C(2.30258509299404568402));
  if constexpr (kOp == UnaryOp::tan) return dy * (1 + saved * saved);
  if constexpr (kOp == UnaryOp::erf) return dy * (C(1.12837916709551257390) * Math::exp(-(saved * saved)));
}

constexpr bool unary_saves_output(UnaryOp op) {
  return op == UnaryOp::exp || op == UnaryOp::sqrt || op == UnaryOp::reciprocal || op == UnaryOp::rsqrt ||
         op == UnaryOp::relu || op == UnaryOp::sigmoid || op == UnaryOp::tanh || op == UnaryOp::expm1 ||
         op == UnaryOp::tan;
}

template <BinaryOp kOp, typename Math, typename C>
constexpr C formula(C a, C b) {
  if constexpr (kOp == BinaryOp::add) return a + b;
  if constexpr (kOp == BinaryOp::subtract) return a - b;
  if constexpr (kOp == BinaryOp::multiply) return a * b;
  if constexpr (kOp == BinaryOp::divide) return a / b;
  if constexpr (kOp == BinaryOp::maximum) return (a != a) | (a > b) ? a : b;
  if constexpr (kOp == BinaryOp::minimum) return (a != a) | (a < b) ? a : b;
  if constexpr (kOp == BinaryOp::pow) return Math::pow(a, b);
  if constexpr (kOp == BinaryOp::atan2) return Math::atan2(a, b);
  if constexpr (kOp == BinaryOp::divide_trunc) return std::trunc(a / b);
  if constexpr (kOp == BinaryOp::divide_floor) {
    // a / b may round up to an integer above the true quotient, so compute it from the exact remainder.
    const C rest = std::fmod(a, b), beyond = (rest != 0) & ((rest < 0) != (b < 0)) ? C(1) : C(0);
    const C whole = std::rint((a - rest) / b - beyond);
    return b == 0 ? a / b : whole == 0 ? std::copysign(C(0), a / b) : whole;
  }
  if constexpr (kOp == BinaryOp::remainder) {
    const C rest = std::fmod(a, b);
    return (rest != 0) & ((rest < 0) != (b < 0)) ? rest + b : rest;
  }
  return a;  // bitwise operations, which only integers have
}

// Whether integer_formula() has the operation: for i64 modulo 2^64 and for u8 modulo 256, as in PyTorch. The other
// operations have results that are not integers.
constexpr bool takes_integers(BinaryOp op) { return op != BinaryOp::divide && op != BinaryOp::atan2; }
constexpr bool is_bitwise(BinaryOp op) {
  return op == BinaryOp::bit_and || op == BinaryOp::bit_or || op == BinaryOp::bit_xor;
}
// Whether an integer b must not be 0. Kernels report a 0.
constexpr bool divides(BinaryOp op) {
  return op == BinaryOp::divide_trunc || op == BinaryOp::divide_floor || op == BinaryOp::remainder;
}
template <BinaryOp kOp>
constexpr std::int64_t integer_formula(std::int64_t a, std::int64_t b) {
  [[maybe_unused]] const auto u = static_cast<std::uint64_t>(a), v = static_cast<std::uint64_t>(b);
  if constexpr (kOp == BinaryOp::add) return static_cast<std::int64_t>(u + v);
  if constexpr (kOp == BinaryOp::subtract) return static_cast<std::int64_t>(u - v);
  if constexpr (kOp == BinaryOp::multiply) return static_cast<std::int64_t>(u * v);
  if constexpr (kOp == BinaryOp::maximum) return a > b ? a : b;
  if constexpr (kOp == BinaryOp::minimum) return a < b ? a : b;
  if constexpr (kOp == BinaryOp::bit_and) return a & b;
  if constexpr (kOp == BinaryOp::bit_or) return a | b;
  if constexpr (kOp == BinaryOp::bit_xor) return a ^ b;
  if constexpr (kOp == BinaryOp::pow) {
    // 1 / a^-b, truncated, or 0 if a is 0.
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
    std::uint64_t y = 1, square = u;
    for (std::uint64_t power = v; power > 0; power /= 2, square *= square) {
      if (power % 2 == 1) y *= square;
    }
    return static_cast<std::int64_t>(y);
  }
  if constexpr (divides(kOp)) {
    if (b == 0) return 0;
    // The smallest int64 divided by -1 overflows, on which processors trap.
    if (b == -1) return kOp == BinaryOp::remainder ? 0 : static_cast<std::int64_t>(0 - u);
    const std::int64_t quotient = a / b, rest = a % b;
    const bool beyond = rest != 0 && (rest < 0) != (b < 0);
    if constexpr (kOp == BinaryOp::divide_trunc) return quotient;
    if constexpr (kOp == BinaryOp::divide_floor) return beyond ? quotient - 1 : quotient;
    if constexpr (kOp == BinaryOp::remainder) return beyond ? rest + b : rest;
  }
  return 0;
}

// Returns element i of start, start + step, ..., in double, or in int64 modulo 2^64.
template <typename C>
constexpr C arange_element(C start, C step, std::int64_t i) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<std::uint64_t>(start) +
                          static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(step));
  } else {
    return start + static_cast<C>(i) * step;
  }
}

// C is any element type.
template <CompareOp kOp, typename C>
constexpr bool holds(C a, C b) {
  if constexpr (kOp == CompareOp::eq) return a == b;
  if constexpr (kOp == CompareOp::ne) return a != b;
  if constexpr (kOp == CompareOp::lt) return a < b;
  if constexpr (kOp == CompareOp::le) return a <= b;
}

namespace detail {
template <typename Op, typename Visitor, std::size_t... kOps>
constexpr void visit_one_of(Op op, const Visitor& visitor, std::index_sequence<kOps...>) {
  static_cast<void>(
      ((op == static_cast<Op>(kOps) ? (visitor(std::integral_constant<Op, static_cast<Op>(kOps)>{}), true) : false) ||
       ...));
}
}  // namespace detail

// Calls visitor with `op` as a constant, so that no loop tests it.
template <typename Visitor>
constexpr void visit_op(UnaryOp op, const Visitor& visitor) {
  detail::visit_one_of(op, visitor, std::make_index_sequence<kUnaryNames.size()>());
}
template <typename Visitor>
constexpr void visit_op(BinaryOp op, const Visitor& visitor) {
  detail::visit_one_of(op, visitor, std::make_index_sequence<kBinaryNames.size()>());
}
template <typename Visitor>
constexpr void visit_op(CompareOp op, const Visitor& visitor) {
  detail::visit_one_of(op, visitor, std::make_index_sequence<kCompareNames.size()>());
}

}  // namespace lockstep
