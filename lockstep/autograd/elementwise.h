// Arithmetic, element by element. activations.h and compare.h have the others. Shapes broadcast as in NumPy.
//
//   Tensor y = exp(-square(x) / 2) + 1;
#pragma once

#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

Tensor negate(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
// log(1 + x), also where x is near 0.
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);
// -1, 0, or 1; NaN stays NaN.
Tensor sign(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
// Limits x to [min, max]. Either bound may be omitted. If min exceeds max, the result is max.
Tensor clamp(const Tensor& x, std::optional<double> min, std::optional<double> max = {});
Tensor pow(const Tensor& x, double exponent);
// Shapes broadcast as in NumPy. Equal operands of maximum or minimum get half of the gradient each.
Tensor pow(const Tensor& x, const Tensor& exponent);
Tensor pow(double base, const Tensor& exponent);
// i64 has maximum, minimum, +, -, and *, also with whole numbers: labels + 1. Other functions need cast().
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
Tensor operator-(const Tensor& a);
// Assigns the result, with its history, to a. Other handles keep the old tensor.
template <typename T>
Tensor& operator+=(Tensor& a, const T& b) {
  return a = a + b;
}
template <typename T>
Tensor& operator-=(Tensor& a, const T& b) {
  return a = a - b;
}
template <typename T>
Tensor& operator*=(Tensor& a, const T& b) {
  return a = a * b;
}
template <typename T>
Tensor& operator/=(Tensor& a, const T& b) {
  return a = a / b;
}
// Return tensors with x's shape, type, and placement, without a history.
Tensor full_like(const Tensor& x, double value);
inline Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
inline Tensor ones_like(const Tensor& x) { return full_like(x, 1); }

}  // namespace lockstep
