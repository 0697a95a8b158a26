// Kernels that move elements without computing.
#pragma once

#include <span>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

class CopyKernels {
 public:
  virtual ~CopyKernels() = default;

  // y = x: same shape, any pair of dtypes and layouts. f32 to bf16 and f16 rounds to nearest even; floating to integer
  // truncates. No overlap.
  virtual void copy(KernelContext&, const View& x, const View& y) = 0;

  // y = x with axes permuted: y.shape[i] == x.shape[axes[i]]. Plain layout, one dtype.
  virtual void permute(KernelContext&, const View& x, std::span<const int> axes, const View& y) = 0;

  // y[i, ...] = x[rows[i], ...]: rows is i64 [n], y [n, ...], x [m, ...]; plain, one dtype. A row outside
  // [0, m) is an error.
  virtual void gather_rows(KernelContext&, const View& x, const View& rows, const View& y) = 0;
};

}  // namespace lockstep
