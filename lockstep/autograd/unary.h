// Internal: functions of one operand that the activations are made of.
#pragma once

#include "lockstep/autograd/tensor.h"
#include "lockstep/backend/elementwise.h"

namespace lockstep {

// Applies the function, with its derivative.
Tensor unary(const Unary& op, const Tensor& x);
// x scale + shift, as one operation.
Tensor affine(const Tensor& x, const Scalar& scale, const Scalar& shift);

}  // namespace lockstep
