// Internal: kernels that reduce axes, or sum or sort along them. Sums run in one fixed order that depends on shapes
// alone, never on the number of threads.
#pragma once

#include <span>

#include "lockstep/backend/kernels.h"

namespace lockstep {

namespace kernels {

// y = the sum of x over every axis where y's extent is 1 and every leading axis that y lacks (the inverse of
// broadcasting). Plain layout, one floating dtype, or i64, which is added modulo 2^64.
struct SumTo {
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

// y = the largest element of x over the same axes as in SumTo; NaN if one of them is NaN; minus infinity (i64: the
// smallest int64) if there are none.
struct MaxTo {
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

// y[a, i, b] = x[a, 0, b] + ... + x[a, i, b], in this order; reverse: x[a, n - 1, b] + ... + x[a, i, b]. Three axes,
// plain, one floating dtype, added in f64 and rounded once, or i64, added modulo 2^64. y may be x.
struct Cumsum {
  bool reverse;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

// y[i] = the index of the largest element of row i, the first among equals. x floating or i64 [n, k], y i64 [n].
struct Argmax {
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

// y[i, :] = the indices of the elements of row i in ascending or descending order; equal elements keep their order.
// NaN counts as the largest. x floating or i64 [n, k], y i64 [n, k], plain.
struct Argsort {
  bool descending;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }

  // Whether element a comes before element b.
  template <typename T>
  static bool precedes(bool descending, T a, T b) {
    return descending ? a > b || (a != a && b == b) : a < b || (a == a && b != b);
  }
};

// out = the sum of `leaves` as the shards' tree adds them: the sum over [0, n) is the sum over [0, p) plus the sum over
// [p, n), where p is the largest power of two below n. All f32 (or all f64), same shape and layout; out may be one of
// the leaves. A leaf without data is missing: its sibling's sum stays unchanged (adding +0 would turn -0 into +0). At
// least one leaf must be present.
struct TreeSum {
  std::span<const View> leaves;
  View out;
  static void views(auto& c, const auto& in, const auto& out) { in(c.leaves), out(c.out); }
};

// y[0] = the sum of squares of all elements of all tensors, over fixed blocks added in a fixed tree, in f64. xs f32 (or
// f64), y f64 [1]. present is empty, or has a u8 [1] for each tensor: 0 omits the tensor (an absent one counts as 1).
struct SquaredNorm {
  std::span<const View> xs, present;
  View y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.xs), in(c.present), out(c.y); }

  // Whether tensor i is omitted. The caller must be able to read `present`.
  bool omits(std::size_t i) const { return !present.empty() && present[i] && *present[i].as<std::uint8_t>() == 0; }
};

}  // namespace kernels

using ReduceKernels = Kernels<kernels::SumTo, kernels::MaxTo, kernels::Cumsum, kernels::Argmax, kernels::Argsort,
                              kernels::TreeSum, kernels::SquaredNorm>;

}  // namespace lockstep
