// Internal: kernels that use an i64 index array. Arrays have three axes, [outer, along, inner], and are plain. The
// index has elements along the middle axis for each place on the other two; an outer or inner extent of 1 broadcasts.
#pragma once

#include "lockstep/backend/kernels.h"

namespace lockstep {

namespace kernels {

// y[a, i, b] = x[a, index[a, i, b], b]: x [outer, m, inner], y [outer, n, inner], of any one dtype. An index outside
// [0, m) is an error.
struct Take {
  View x, index, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), in(c.index), out(c.y); }
};

// y[a, j, b] = the sum of x[a, i, b] over all i with index[a, i, b] == j, in the order of i; 0 if there is none.
// x [outer, n, inner], y [outer, m, inner], of one floating dtype; bf16 and f16 are summed in f32. An index outside
// [0, m) is an error.
struct ScatterSum {
  View x, index, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), in(c.index), out(c.y); }
};

// y[a, index[a, i, b], b] = x[a, i, b] in the order of i, so the last of equal indices wins; the rest of y stays as it
// is. x [outer, n, inner], y [outer, m, inner], of any one dtype. An index outside [0, m) is an error.
struct Scatter {
  View x, index, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), in(c.index), out(c.y); }
};

}  // namespace kernels

using IndexKernels = Kernels<kernels::Take, kernels::ScatterSum, kernels::Scatter>;

}  // namespace lockstep
