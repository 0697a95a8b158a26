// Operators between a tensor and a tensor or a number: see operand.h for the types.
#pragma once

#include "operand.h"

namespace lockstep::python {

Tensor add(const Tensor& a, const Operand& b);
Tensor sub(const Tensor& a, const Operand& b);
Tensor mul(const Tensor& a, const Operand& b);
Tensor true_divide(const Tensor& a, const Operand& b);
Tensor floor_divide(const Tensor& a, const Operand& b);
Tensor divide(const Tensor& a, const Operand& b, Rounding rounding);
Tensor remainder(const Tensor& a, const Operand& b);
// An integer to an integer power is an integer.
Tensor power(const Tensor& a, const Operand& b);
Tensor power_of(const Scalar& a, const Tensor& b);
Tensor eq(const Tensor& a, const Operand& b);
Tensor ne(const Tensor& a, const Operand& b);
Tensor lt(const Tensor& a, const Operand& b);
Tensor le(const Tensor& a, const Operand& b);
Tensor gt(const Tensor& a, const Operand& b);
Tensor ge(const Tensor& a, const Operand& b);
// Returns ~x: of a mask, or of all bits of integers.
Tensor inverted_bits(const Tensor& x);
Tensor mask_and(const Tensor& a, const Operand& b);
Tensor mask_or(const Tensor& a, const Operand& b);
Tensor mask_xor(const Tensor& a, const Operand& b);
// Returns matmul(a, b), also for integers.
Tensor matrix_product(const Tensor& a, const Tensor& b);
// Returns condition ? a : b.
Tensor where_of(const Tensor& condition, const Operand& a, const Operand& b);

}  // namespace lockstep::python
