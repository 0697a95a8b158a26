// Internal: Tensor::index() and index_put_() for lists of indices that are known at run time, as from Python, and a
// differentiable index_put().
#pragma once

#include <span>

#include "lockstep/autograd/indexing.h"

namespace lockstep {

Tensor index(const Tensor& x, std::span<const TensorIndex> indices);
void index_put_(const Tensor& x, std::span<const TensorIndex> indices, const Tensor& value);
// x with `value`, which broadcasts and is cast to x's type, at the indices. Differentiable in both. Waits for the
// indices, unless a mask gets one value.
Tensor index_put(const Tensor& x, std::span<const TensorIndex> indices, const Tensor& value);

}  // namespace lockstep
