// Functions whose result has as many elements as the data say. They wait for the data, which go through the host, so a
// RecordedStep describes itself anew each time. The samples of a batch must be in one place: gather() brings them
// together, per_shard() runs a function on each shard.
//
//   Tensor large = masked_select(x, gt(x, 1));
#pragma once

#include <cstdint>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// The elements of x where the mask is not 0, in order: [n]. Both broadcast. Differentiable.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// The places of all elements that are not 0, in order: i64 [n, x's axes].
Tensor nonzero(const Tensor& x);
// The different elements of x in ascending order, [n]; for each element of x, its place among them, i64 in x's shape;
// and how often each of them occurs, i64 [n]. NaN differs from NaN, and is last.
struct UniqueResult {
  Tensor values, inverse, counts;
};
UniqueResult unique(const Tensor& x);
// The different slices of x along `dim`, in ascending order of their first elements, then of their second ones, ...;
// the place of each slice among them, i64 [x's extent]; and how often each occurs.
UniqueResult unique(const Tensor& x, int dim);
// How often each number from 0 to the largest one occurs in x, i64 [n] or u8 [n]: i64 [largest + 1], at least
// [minlength]. With weights, [n] of a floating type, the sum of the weights at each number.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, std::int64_t minlength = 0);
// Element i along the axis as often as repeats[i] says, i64 [x's extent]. Differentiable.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, int dim);

}  // namespace lockstep
