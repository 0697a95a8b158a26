// Functions whose result has a size that depends on the data. They wait for the data, which go through the host, so a
// step that calls them is not recorded (RecordedStep). The samples of a batch must be in one place: gather() brings
// them together, per_shard() runs a function on each shard.
//
//   Tensor large = masked_select(x, gt(x, 1));
#pragma once

#include <cstdint>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// The elements of x where the mask is not 0, in order: [n]. Both broadcast. Differentiable.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// The indices of all elements that are not 0, in order: i64 [n, number of axes of x].
Tensor nonzero(const Tensor& x);
// values [n]: the different elements of x in ascending order. inverse, i64 in the shape of x: the index in `values` of
// each element of x. counts, i64 [n]: how often each of the values occurs. NaN differs from NaN, and comes last.
struct UniqueResult {
  Tensor values, inverse, counts;
};
UniqueResult unique(const Tensor& x);
// The different slices of x along `dim`, in ascending order of their first elements, then of their second elements, and
// so on; the index of each slice in them, i64 [extent of `dim`]; and how often each of them occurs.
UniqueResult unique(const Tensor& x, int dim);
// How often each number from 0 to the largest element occurs in x, which is [n] of whole numbers or bools. The result
// is i64 [largest + 1], or [minlength] if longer. With weights, [n] of a floating type, it has the sum of the weights.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, std::int64_t minlength = 0);
// Repeats element i along the axis repeats[i] times; repeats is i64 [extent of the axis]. Differentiable.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, int dim);

}  // namespace lockstep
