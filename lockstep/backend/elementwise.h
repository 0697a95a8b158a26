// Internal: kernels that compute each element separately. Arithmetic on bf16 and f16 is done in f32 and rounded once at
// the end.
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/backend/formulas.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// An operation and its constants:
//   leaky_relu  x > 0 ? x : a x
//   elu         x > 0 ? x : a (exp(x) - 1)
//   softplus    a x > b ? x : log(1 + exp(a x)) / a
//   clamp       x within [a, b]: b where a > b
//   pow         x^a
//   divide      x / a, rounded once: a whole quotient is whole, as it is not by x (1 / a)
struct Unary {
  UnaryOp op;
  double a = 0;
  double b = 0;

  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Unary(UnaryOp op, double a = 0, double b = 0) : op(op), a(a), b(b) {}
};

class ElementwiseKernels {
 public:
  virtual ~ElementwiseKernels() = default;

  // y = op(x). Same shape, dtype, and layout; y may alias x. gelu is exact, x * Phi(x). NaN stays NaN.
  virtual void unary(KernelContext&, const Unary& op, const View& x, const View& y) = 0;

  // dx = dy * op'(x). `saved` is the output y or the input x: see unary_saves_output. All have one shape, dtype, and
  // layout. dx may alias dy.
  virtual void unary_backward(KernelContext&, const Unary& op, const View& saved, const View& dy, const View& dx) = 0;

  // out = op(a, b). Shapes broadcast to out's shape as in NumPy; one floating dtype, or i64 if takes_integers(op).
  // Equal shapes have equal layouts; a broadcast is plain. out may alias a or b if the shapes are equal. maximum and
  // minimum of NaN are NaN.
  virtual void binary(KernelContext&, BinaryOp op, const View& a, const View& b, const View& out) = 0;

  // out = op(a, b) ? 1 : 0, as u8. Operands as for binary(), of any dtype. NaN differs from everything.
  virtual void compare(KernelContext&, CompareOp op, const View& a, const View& b, const View& out) = 0;

  // out = condition ? a : b. Condition u8; a, b and out of any one dtype. Shapes broadcast to out's; all plain, or of
  // one shape and layout.
  virtual void where(KernelContext&, const View& condition, const View& a, const View& b, const View& out) = 0;

  // y = scale * x + shift. Same shape, dtype and layout; y may alias x.
  virtual void affine(KernelContext&, double scale, double shift, const View& x, const View& y) = 0;

  // Every element of y becomes `value`. Any dtype.
  virtual void fill(KernelContext&, double value, const View& y) = 0;

  // y[i] = start + i * step, computed in f64 and rounded once. Plain layout, any dtype.
  virtual void arange(KernelContext&, double start, double step, const View& y) = 0;
};

}  // namespace lockstep
