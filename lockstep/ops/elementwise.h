// Internal: operations on single elements, without gradients. autograd/functions.h has the differentiable ones.
#pragma once

#include "lockstep/backend/elementwise.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

Array unary(const Unary& op, const Array& x);
// The gradient of x from the gradient dy of y = op(x); `saved` is y or x, see unary_saves_output.
Array unary_backward(const Unary& op, const Array& saved, const Array& dy);
// Shapes broadcast as in NumPy. If the shapes are equal, b is converted to a's layout. Takes floating types unless
// is_bitwise(op), i64 and u8 if takes_integers(op), and bools if is_bitwise(op).
Array binary(BinaryOp op, const Array& a, const Array& b);
// op(a, b) as bools. Shapes broadcast as in NumPy; a and b have the same type, which may be any. Errors name `what`, or
// the operation.
Array compare(CompareOp op, const Array& a, const Array& b, std::string_view what = {});
// op(x, number) or, exchanged, op(number, x). Comparisons of whole numbers with any number are exact; for floating
// elements, the number is first rounded to their type.
Array compare_with(CompareOp op, const Array& x, const Scalar& number, bool exchanged = false);
// condition ? a : b. Shapes broadcast as in NumPy; the condition is a mask; a and b have one type, which may be any.
Array where(const Array& condition, const Array& a, const Array& b);
// scale * x + shift. If x is i64 or u8, scale and shift must be whole numbers.
Array affine(const Array& x, const Scalar& scale, const Scalar& shift);
// Throws unless the type can hold the value: i64 and u8 hold whole numbers of their range, bool takes every number, and
// a finite number beyond the range of a floating type must not become infinite. `what` names the operation.
void check_holds(std::string_view what, DType dtype, const Scalar& value);
// The type must be able to hold the value, see check_holds(); otherwise the behavior is undefined.
void fill_(const Array& y, const Scalar& value);
// `value` in every element.
Array full(const Shape& shape, const Scalar& value, DType dtype, Device device);
// One element of x's type on x's device, which broadcasts to any shape.
Array scalar_like(const Array& x, const Scalar& value);
// start, start + step, ...: [count]
Array arange(std::int64_t count, DType dtype, Device device, const Scalar& start = 0, const Scalar& step = 1);
// y += x, in y's layout.
void add_(const Array& y, const Array& x);

// "relu", as in messages and timelines. Throws for an operation without a name, which no kernel computes.
constexpr std::string_view name(UnaryOp op) { return kUnaryNames.at(static_cast<std::size_t>(op)); }
constexpr std::string_view name(BinaryOp op) { return kBinaryNames.at(static_cast<std::size_t>(op)); }
constexpr std::string_view name(CompareOp op) { return kCompareNames.at(static_cast<std::size_t>(op)); }

// The shape that a and b broadcast to.
Shape broadcast_shape(std::string_view what, const Shape& a, const Shape& b);

}  // namespace lockstep::ops
