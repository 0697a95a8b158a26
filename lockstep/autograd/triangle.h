// Triangles: set elements below (triu) or above (tril) the diagonal of the last two axes to zero. A positive `diagonal`
// moves the diagonal up and to the right.
//
//   Tensor causal = tril(ones({length, length}));
#pragma once

#include <cstdint>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);

}  // namespace lockstep
