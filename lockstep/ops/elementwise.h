// Operations on single elements. Without gradients: those are in autograd/functions.h.
#pragma once

#include "lockstep/backend/elementwise.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

Tensor unary(UnaryOp op, const Tensor& x);
// The gradient of x from that of y = op(x); `saved` is y or x, see unary_saves_output.
Tensor unary_backward(UnaryOp op, const Tensor& saved, const Tensor& dy);
// Shapes broadcast as in NumPy. b is brought to a's layout where the shapes are equal.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
// scale * x + shift
Tensor affine(const Tensor& x, double scale, double shift);
void fill_(const Tensor& y, double value);
// y += x, in y's layout.
void add_(const Tensor& y, const Tensor& x);

// "relu", as in messages and timelines.
std::string_view name(UnaryOp op);
std::string_view name(BinaryOp op);

// The shape that a and b broadcast to.
Shape broadcast_shape(std::string_view what, const Shape& a, const Shape& b);

}  // namespace lockstep::ops
