// Sorting along an axis.
//
//   auto [values, indices] = topk(logits, 5);
#pragma once

#include <cstdint>

#include "lockstep/autograd/reduce.h"
#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// The elements along `dim`, which is not the batch axis, in ascending or descending order, and their indices. Equal
// elements keep their order. NaN counts as the largest. CPUs take time in k log k for k elements, GPUs in the square
// of k.
using SortResult = MaxResult;
SortResult sort(const Tensor& x, int dim = -1, bool descending = false);
// Returns i64, without a history.
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
// The first k elements in this order: the largest in descending order, or the smallest in ascending order.
SortResult topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true);
// The middle element of all elements of a tensor that is not cut, or of those along `dim`, with its index. For an even
// number of elements, it is the lower one of the two; if one is NaN, it is NaN.
Tensor median(const Tensor& x);
MaxResult median(const Tensor& x, int dim, bool keepdim = false);

}  // namespace lockstep
