// Sums. Their order depends on shapes alone.
#pragma once

#include <span>

#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

// The sum of x over the axes along which `shape` would have to be broadcast to x's shape.
Tensor sum_to(const Tensor& x, const Shape& shape);
// The index of the largest element of each row: [n, k] -> i64 [n].
Tensor argmax(const Tensor& x);
// The sum of all defined leaves in the shards' tree: leaf i is shard i's. They may lie on other devices of the memory
// domain of `device`, where the result is. Undefined if no leaf is defined.
Tensor tree_sum(std::span<const Tensor> leaves, Device device);
// The sum of squares of all elements of all tensors, f64 [1]. present: none, or for each tensor a u8 [1] of which 0 leaves
// it out as if it were not there (undefined: 1).
Tensor squared_norm(std::span<const Tensor> xs, std::span<const Tensor> present = {});

}  // namespace lockstep::ops
