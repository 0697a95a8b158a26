// Internal: kernels that compute each element separately. Arithmetic on bf16 and f16 is done in f32 and rounded once at
// the end.
#pragma once

#include "lockstep/backend/formulas.h"
#include "lockstep/backend/kernels.h"
#include "lockstep/tensor/scalar.h"

namespace lockstep {

// An operation and its constants:
//   leaky_relu  x > 0 ? x : a x
//   elu         x > 0 ? x : a (exp(x) - 1)
//   softplus    a x > b ? x : log(1 + exp(a x)) / a
//   clamp       x within [a, b]: b where a > b
//   pow         x^a
//   divide      x / a, rounded once, so that integer quotients are exact; x (1 / a) rounds twice
struct Unary {
  UnaryOp op;
  double a = 0;
  double b = 0;

  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Unary(UnaryOp op, double a = 0, double b = 0) : op(op), a(a), b(b) {}
};

namespace kernels {

// y = op(x). Same shape, dtype, and layout; y may be x. gelu is exact, x * Phi(x). NaN stays NaN.
struct Unary {
  lockstep::Unary op;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

// dx = dy * op'(x). `saved` is the output y or the input x: see unary_saves_output. All have one shape, dtype, and
// layout. dx may alias dy.
struct UnaryBackward {
  lockstep::Unary op;
  View saved, dy, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.saved), in(c.dy), out(c.dx); }
};

// out = op(a, b). Shapes broadcast to out's shape as in NumPy. All have one dtype: floating unless is_bitwise(op), or
// i64 or u8 if takes_integers(op). Operands of equal shapes have equal layouts; a broadcast is plain. out may be a or b
// if the shapes are equal. maximum and minimum of NaN are NaN.
struct Binary {
  BinaryOp op;
  View a, b, out;
  static void views(auto& c, const auto& in, const auto& out) { in(c.a), in(c.b), out(c.out); }
};

// out = op(a, b), bools. Operands are as for Binary, but of any dtype. NaN is unequal to everything, itself included.
struct Compare {
  CompareOp op;
  View a, b, out;
  static void views(auto& c, const auto& in, const auto& out) { in(c.a), in(c.b), out(c.out); }
};

// out = condition ? a : b. `condition` is a mask; a, b, and out have any one dtype. Shapes broadcast to out's; all are
// plain, or have one shape and layout.
struct Where {
  View condition, a, b, out;
  static void views(auto& c, const auto& in, const auto& out) { in(c.condition), in(c.a), in(c.b), out(c.out); }
};

// y = scale * x + shift. Same shape, dtype and layout; y may be x.
struct Affine {
  double scale, shift;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

// Every element of y becomes `value`. Any dtype.
struct Fill {
  Scalar value;
  View y;
  static void views(auto& c, const auto&, const auto& out) { out(c.y); }
};

// y[i] = start + i * step. Exact in integer types if start and step are whole; otherwise computed in f64 and rounded
// once. Plain layout, any dtype.
struct Arange {
  Scalar start, step;
  View y;
  static void views(auto& c, const auto&, const auto& out) { out(c.y); }
};

}  // namespace kernels

using ElementwiseKernels = Kernels<kernels::Unary, kernels::UnaryBackward, kernels::Binary, kernels::Compare,
                                   kernels::Where, kernels::Affine, kernels::Fill, kernels::Arange>;

}  // namespace lockstep
