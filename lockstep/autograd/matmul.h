// Matrix products.
//
//   Tensor y = matmul(x, transpose(w));
#pragma once

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// [.., m, k] x [.., k, n] -> [.., m, n]. Leading axes broadcast as in NumPy. A vector acts as a row on the left and as
// a column on the right.
Tensor matmul(const Tensor& a, const Tensor& b);
// [batch, m, k] x [batch, k, n].
Tensor bmm(const Tensor& a, const Tensor& b);
// [m, k] x [k, n], [m, k] x [k], [k] x [k]: matmul() for these shapes only.
Tensor mm(const Tensor& a, const Tensor& b);
Tensor mv(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);
// a[i] b[j]: [m], [n] -> [m, n].
Tensor outer(const Tensor& a, const Tensor& b);
// x w^T + bias: x [.., in], w [out, in], bias [out] or undefined -> [.., out], in x's type. w and bias may be f32 if x
// is bf16 or f16.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

}  // namespace lockstep
