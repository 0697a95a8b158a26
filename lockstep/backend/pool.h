// Pooling over windows and over whole images. Tensors are [N, C, H, W] of one dtype; x and y have one layout
// (any that fits both).
#pragma once

#include <array>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace LOCKSTEP_API lockstep {

struct Pool2dOptions {
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{2, 2};
  std::array<std::int64_t, 2> padding{0, 0};
  // For average pooling: the padding counts as zeros in the mean (PyTorch's default).
  bool count_include_pad = true;
};

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
