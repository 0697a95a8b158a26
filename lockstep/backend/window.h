// The windows of two-dimensional convolutions and pooling. Height comes first, then width. Along each axis, H becomes
//   convolution: H' = floor((H + 2 padding - dilation (kernel - 1) - 1) / stride) + 1
//   pooling:     H' = floor((H + 2 padding - kernel) / stride) + 1
// It is an error if the window does not fit the padded image.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// The kernel's size is that of the weight. Stride, dilation, and groups are at least 1, padding is at least 0; groups
// divide the channels of the input and of the output. Anything else is an error.
struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;

  bool operator==(const Conv2dOptions&) const = default;
};

// Kernel and stride are at least 1, padding is from 0 to half the kernel. Anything else is an error. Set the stride
// with the kernel: unlike PyTorch's, it does not default to the kernel.
struct Pool2dOptions {
  std::array<std::int64_t, 2> kernel_size{2, 2};
  std::array<std::int64_t, 2> stride{2, 2};
  std::array<std::int64_t, 2> padding{0, 0};
  // For average pooling: padding counts as zeros in the mean (PyTorch's default).
  bool count_include_pad = true;
};

}  // namespace lockstep
