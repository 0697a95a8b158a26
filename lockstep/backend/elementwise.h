// Kernels that treat every element alone. Arithmetic on bf16 and f16 is done in f32 and rounded once at the end.
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

enum class UnaryOp { negate, exp, log, sqrt, square, abs, relu, gelu, sigmoid, tanh };
enum class BinaryOp { add, subtract, multiply, divide };

class ElementwiseKernels {
 public:
  virtual ~ElementwiseKernels() = default;

  // y = op(x). Same shape, dtype and layout; y may be x. gelu is the exact one, x * Phi(x).
  virtual void unary(KernelContext&, UnaryOp op, const View& x, const View& y) = 0;

  // dx = dy * op'(x). `saved` is the output y for exp, sqrt, relu, sigmoid and tanh, and the input x otherwise
  // (see unary_saves_output). All the same shape, dtype and layout; dx may be dy.
  virtual void unary_backward(KernelContext&, UnaryOp op, const View& saved, const View& dy, const View& dx) = 0;

  // out = op(a, b). Shapes broadcast as in NumPy to out's shape; one dtype. Layouts are equal when the shapes
  // are; a broadcast is plain. out may be a or b where the shapes are equal.
  virtual void binary(KernelContext&, BinaryOp op, const View& a, const View& b, const View& out) = 0;

  // y = scale * x + shift. Same shape, dtype and layout; y may be x.
  virtual void affine(KernelContext&, double scale, double shift, const View& x, const View& y) = 0;

  // Every element of y becomes `value`. Any dtype.
  virtual void fill(KernelContext&, double value, const View& y) = 0;
};

constexpr bool unary_saves_output(UnaryOp op) {
  return op == UnaryOp::exp || op == UnaryOp::sqrt || op == UnaryOp::relu || op == UnaryOp::sigmoid ||
         op == UnaryOp::tanh;
}

}  // namespace lockstep
