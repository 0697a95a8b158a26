// Internal: pooling over windows and over whole images. Arrays are [N, C, H, W] of one dtype; x and y have one layout
// (any that fits both).
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/backend/window.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

class PoolKernels {
 public:
  virtual ~PoolKernels() = default;

  // `where` (i64, y's shape and layout) gets h * W + w of each maximum, the first among equals. NaN counts as
  // the largest. It may be absent in inference.
  virtual void max_forward(KernelContext&, const Pool2dOptions&, const View& x, const View& y, const View& where) = 0;
  virtual void max_backward(KernelContext&, const Pool2dOptions&, const View& dy, const View& where,
                            const View& dx) = 0;
  virtual void avg_forward(KernelContext&, const Pool2dOptions&, const View& x, const View& y) = 0;
  virtual void avg_backward(KernelContext&, const Pool2dOptions&, const View& dy, const View& dx) = 0;

  // y [N, C, 1, 1], plain, is the mean over H and W; x in any layout.
  virtual void global_avg_forward(KernelContext&, const View& x, const View& y) = 0;
  virtual void global_avg_backward(KernelContext&, const View& dy, const View& dx) = 0;
};

}  // namespace lockstep
