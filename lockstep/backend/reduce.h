// Internal: kernels that reduce axes, or sum or sort along them. Sums run in one fixed order that depends on shapes
// alone, never on the number of threads.
#pragma once

#include <span>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

class ReduceKernels {
 public:
  virtual ~ReduceKernels() = default;

  // y = the sum of x over every axis where y's extent is 1 or missing in front (the inverse of broadcasting).
  // Plain layout, one floating dtype.
  virtual void sum_to(KernelContext&, const View& x, const View& y) = 0;

  // y = the largest of x over the same axes as in sum_to; NaN if one is NaN, minus infinity over no elements.
  virtual void max_to(KernelContext&, const View& x, const View& y) = 0;

  // y[a, i, b] = x[a, 0, b] + ... + x[a, i, b], in this order; reverse: x[a, n - 1, b] + ... + x[a, i, b]. Three axes,
  // plain, one floating dtype; added in f64 and rounded once. y may alias x.
  virtual void cumsum(KernelContext&, bool reverse, const View& x, const View& y) = 0;

  // y[i] = the index of the largest element of row i, the first among equals. x floating [n, k], y i64 [n].
  virtual void argmax(KernelContext&, const View& x, const View& y) = 0;

  // y[i, :] = the indices of the elements of row i in ascending or descending order; equal elements keep their order.
  // NaN counts as the largest. x floating [n, k], y i64 [n, k], plain.
  virtual void argsort(KernelContext&, bool descending, const View& x, const View& y) = 0;

  // out = the sum of `leaves` as the shards' tree adds them: a tree over [0, n) adds the tree over its first half, n
  // rounded down to the largest power of two below n, and the tree over the rest. All f32 (or all f64), same shape and
  // layout; out may alias one of the leaves. A leaf without data is missing: its sibling passes unchanged (adding +0
  // would turn -0 into +0). At least one leaf must be present.
  virtual void tree_sum(KernelContext&, std::span<const View> leaves, const View& out) = 0;

  // y[0] = the sum of squares of all elements of all arrays, over fixed blocks added in a fixed tree, in f64. xs f32
  // (or f64), y f64 [1]. present is empty, or has a u8 [1] for each array: 0 omits the array (absent: 1).
  virtual void squared_norm(KernelContext&, std::span<const View> xs, std::span<const View> present, const View& y) = 0;

 protected:
  // Whether an element comes before another one in argsort().
  template <typename T>
  static bool precedes(bool descending, T a, T b) {
    return descending ? a > b || (a != a && b == b) : a < b || (a == a && b != b);
  }
  static bool left_out(std::span<const View> present, std::size_t i) {
    return !present.empty() && present[i] && *present[i].as<std::uint8_t>() == 0;
  }
};

}  // namespace lockstep
