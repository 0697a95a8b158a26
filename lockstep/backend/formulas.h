// Internal: the operations on single elements: their names, formulas, and derivatives. The cpu and cuda back ends share
// them. The reference back end has its own formulas, because it is the oracle.
//
// C is the type of the computation: float or double. Math has, as static members, the functions that each back end
// implements itself: exp, expm1, log, log1p, sin, cos, tanh, sigmoid, pow, normal_cdf, normal_pdf. Conditions select
// values instead of branching, so that CPU loops vectorize.
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
  divide
};
// As in messages and timelines, in the order above.
inline constexpr auto kUnaryNames = std::to_array<std::string_view>(
    {"negate",     "exp",      "log",     "log1p", "sqrt",  "square",     "abs",   "sign",
     "reciprocal", "rsqrt",    "sin",     "cos",   "relu",  "leaky_relu", "elu",   "gelu",
     "silu",       "softplus", "sigmoid", "tanh",  "clamp", "pow",        "divide"});

enum class BinaryOp { add, subtract, multiply, divide, maximum, minimum, pow };
inline constexpr auto kBinaryNames =
    std::to_array<std::string_view>({"add", "subtract", "multiply", "divide", "maximum", "minimum", "pow"});

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
    // Only near 0 does 1 + x lose bits that count. Math::log1p need not know other numbers.
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
}

constexpr bool unary_saves_output(UnaryOp op) {
  return op == UnaryOp::exp || op == UnaryOp::sqrt || op == UnaryOp::reciprocal || op == UnaryOp::rsqrt ||
         op == UnaryOp::relu || op == UnaryOp::sigmoid || op == UnaryOp::tanh;
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
}

// The formula for i64, modulo 2^64, as in PyTorch. Operations without one have results that are not whole.
constexpr bool takes_integers(BinaryOp op) { return op != BinaryOp::divide && op != BinaryOp::pow; }
template <BinaryOp kOp>
constexpr std::int64_t integer_formula(std::int64_t a, std::int64_t b) {
  [[maybe_unused]] const auto u = static_cast<std::uint64_t>(a), v = static_cast<std::uint64_t>(b);
  if constexpr (kOp == BinaryOp::add) return static_cast<std::int64_t>(u + v);
  if constexpr (kOp == BinaryOp::subtract) return static_cast<std::int64_t>(u - v);
  if constexpr (kOp == BinaryOp::multiply) return static_cast<std::int64_t>(u * v);
  if constexpr (kOp == BinaryOp::maximum) return a > b ? a : b;
  if constexpr (kOp == BinaryOp::minimum) return a < b ? a : b;
  return 0;
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
