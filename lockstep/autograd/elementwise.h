// Arithmetic, element by element. See also activations.h and compare.h. Shapes broadcast as in NumPy.
//
//   Tensor y = exp(-square(x) / 2) + 1;
//
// Operands of different types are promoted as in PyTorch: labels + x is f32, mask * x has x's type, u8 beside i64
// becomes i64, f32 beside f64 becomes f64, bf16 beside f16 becomes f32. A tensor without axes does not widen a floating
// tensor with axes. Quotients of whole numbers, and their exp(), log(), sqrt(), sin(), and so on, are f32. A plain
// number does not change the type: labels * 2 is i64, labels * 0.5 is an error.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

Tensor negate(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
// log(1 + x), accurate also where x is near 0.
Tensor log1p(const Tensor& x);
// exp(x) - 1, accurate also where x is near 0.
Tensor expm1(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);
// -1, 0, or 1; NaN stays NaN.
Tensor sign(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor erf(const Tensor& x);
// The angle of the point (x, y), from -pi to pi.
Tensor atan2(const Tensor& y, const Tensor& x);
// Round down, up, to the nearest whole number (halves to the even one), or toward 0. Their gradient is 0. Whole numbers
// stay the same.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
Tensor trunc(const Tensor& x);
// Replaces NaN by `nan`, and infinities by the given numbers or by the type's largest and smallest finite numbers.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
// Limits x to [min, max]. Either bound may be omitted. If min exceeds max, the result is max.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
// The bounds broadcast, and get the gradient where they are the result. An undefined bound does not limit x.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max);
Tensor pow(const Tensor& x, const Scalar& exponent);
// Shapes broadcast as in NumPy. Equal operands of maximum or minimum get half of the gradient each.
Tensor pow(const Tensor& x, const Tensor& exponent);
Tensor pow(const Scalar& base, const Tensor& exponent);
// i64 and u8 have abs, square, maximum, minimum, +, -, *, whole quotients, remainders, whole powers, and &, |, ^, ~,
// also with plain whole numbers: labels + 1. Results of u8 wrap at 256. For bools, + and maximum() are true if either
// operand is, * and minimum() if both are, and - is an error; beside a number, bools count as i64.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Scalar& b);
Tensor operator-(const Tensor& a, const Scalar& b);
Tensor operator*(const Tensor& a, const Scalar& b);
Tensor operator/(const Tensor& a, const Scalar& b);
Tensor operator+(const Scalar& a, const Tensor& b);
Tensor operator-(const Scalar& a, const Tensor& b);
Tensor operator*(const Scalar& a, const Tensor& b);
Tensor operator/(const Scalar& a, const Tensor& b);
Tensor operator-(const Tensor& a);
// a + alpha b, a - alpha b, and a b, as PyTorch's functions and methods of these names.
Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha = 1);
Tensor add(const Tensor& a, const Scalar& b, const Scalar& alpha = 1);
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha = 1);
Tensor sub(const Tensor& a, const Scalar& b, const Scalar& alpha = 1);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Scalar& b);
// The quotient, exact or rounded to a whole number, by PyTorch's rounding modes None, "trunc", and "floor". `x // y` is
// div(x, y, {.rounding_mode = Rounding::floor}). A rounded quotient of i64 by 0 fails the task. The gradient of a
// rounded quotient is 0.
enum class Rounding : std::uint8_t { none, trunc, floor };
struct DivOptions {
  Rounding rounding_mode = Rounding::none;
};
Tensor div(const Tensor& a, const Tensor& b, const DivOptions& options = {});
Tensor div(const Tensor& a, const Scalar& b, const DivOptions& options = {});
// a - b floor(a / b), which has b's sign, as Python's %. It takes i64, too.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, const Scalar& b);
// The result of an operation in place on a, in a's type. Throws unless the types are equal or both floating.
Tensor kept_type(const Tensor& a, const Tensor& result);
// Assigns the result, with its history and in a's type, to a. Other handles keep the old tensor. But a leaf, parameter,
// or buffer is written in place for all handles, and needs a NoGradGuard if it requires a gradient.
Tensor& assign_result(std::string_view what, Tensor& a, const Tensor& result);
template <typename T>
Tensor& operator+=(Tensor& a, const T& b) {
  return assign_result("operator+=", a, a + b);
}
template <typename T>
Tensor& operator-=(Tensor& a, const T& b) {
  return assign_result("operator-=", a, a - b);
}
template <typename T>
Tensor& operator*=(Tensor& a, const T& b) {
  return assign_result("operator*=", a, a * b);
}
template <typename T>
Tensor& operator/=(Tensor& a, const T& b) {
  return assign_result("operator/=", a, a / b);
}
// Copies x to new memory. Differentiable.
Tensor clone(const Tensor& x);
// Return tensors with x's shape, type, and placement, without a history.
Tensor full_like(const Tensor& x, const Scalar& value);
inline Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
inline Tensor ones_like(const Tensor& x) { return full_like(x, 1); }

}  // namespace lockstep
