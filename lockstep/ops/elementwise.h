// Operations on single elements. Without gradients: those are in autograd/functions.h.
#pragma once

#include "lockstep/backend/elementwise.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

Array unary(UnaryOp op, const Array& x);
// The gradient of x from that of y = op(x); `saved` is y or x, see unary_saves_output.
Array unary_backward(UnaryOp op, const Array& saved, const Array& dy);
// Shapes broadcast as in NumPy. b is brought to a's layout where the shapes are equal.
Array binary(BinaryOp op, const Array& a, const Array& b);
// scale * x + shift
Array affine(const Array& x, double scale, double shift);
void fill_(const Array& y, double value);
// y += x, in y's layout.
void add_(const Array& y, const Array& x);

// "relu", as in messages and timelines.
std::string_view name(UnaryOp op);
std::string_view name(BinaryOp op);

// The shape that a and b broadcast to.
Shape broadcast_shape(std::string_view what, const Shape& a, const Shape& b);

}  // namespace lockstep::ops
