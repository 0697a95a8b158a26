// Internal: sums, maxima, and sorting, for floating types and i64. The order of sums depends on shapes alone.
#pragma once

#include <optional>
#include <span>

#include "lockstep/engine/task.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// The sum of x over the axes along which broadcasting `shape` to x's shape would repeat elements.
Array sum_to(const Array& x, const Shape& shape);
// The largest element of x over the same axes; NaN if any of them is NaN.
Array max_to(const Array& x, const Shape& shape);
// Sums of the first 1, 2, ... elements along an axis; with `reverse`, of the last 1, 2, ... elements.
Array cumsum(const Array& x, int axis, bool reverse = false);
// The index of the largest element of each row: [n, k] -> i64 [n].
Array argmax(const Array& x);
// The indices that sort each row; equal elements keep their order: [n, k] -> i64 [n, k]. NaN counts as the largest.
Array argsort(const Array& x, bool descending);
// The sum of all defined leaves in the shards' tree: leaf i is shard i's. The result is on `device`; leaves may lie on
// other devices of its memory domain. Undefined if no leaf is defined. Sums of bf16 and f16 are taken in f32, and
// rounded once. i64 is exact.
//
// `lane`: the lane to run on instead of a compute lane, so that later work on the compute lane does not wait for leaves
// of other devices and processes.
Array tree_sum(std::span<const Array> leaves, Device device, std::optional<LaneId> lane = {});
// The largest of all defined leaves, element by element, on `device`. Undefined if no leaf is defined.
Array max_of(std::span<const Array> leaves, Device device);
// The sum of squares of all elements of all arrays, f64 [1]. present: empty, or a u8 [1] for each array; 0 omits the
// array (undefined: 1).
Array squared_norm(std::span<const Array> xs, std::span<const Array> present = {});

}  // namespace lockstep::ops
