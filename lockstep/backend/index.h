// Internal: kernels that use an i64 index array. Arrays have three axes, [outer, along, inner], and are plain. The
// index has `along` numbers for each place of the other axes; an axis of extent 1 shares them.
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

class IndexKernels {
 public:
  virtual ~IndexKernels() = default;

  // y[a, i, b] = x[a, index[a, i, b], b]: x [outer, m, inner], y [outer, n, inner], of any one dtype. An index outside
  // [0, m) is an error.
  virtual void take(KernelContext&, const View& x, const View& index, const View& y) = 0;

  // y[a, j, b] = the sum of x[a, i, b] over all i with index[a, i, b] == j, in the order of i; 0 if there is none.
  // x [outer, n, inner], y [outer, m, inner], of one floating dtype; bf16 and f16 are summed in f32. An index outside
  // [0, m) is an error.
  virtual void scatter_sum(KernelContext&, const View& x, const View& index, const View& y) = 0;
};

}  // namespace lockstep
