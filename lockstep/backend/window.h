// The windows of two-dimensional convolutions and pooling, as users and kernels name them. Height comes first, then
// width.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;

  bool operator==(const Conv2dOptions&) const = default;
};

struct Pool2dOptions {
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{2, 2};
  std::array<std::int64_t, 2> padding{0, 0};
  // For average pooling: the padding counts as zeros in the mean (PyTorch's default).
  bool count_include_pad = true;
};

}  // namespace lockstep
