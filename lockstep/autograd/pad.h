// Padding with a constant.
//
//   Tensor framed = pad(images, {1, 1, 1, 1});  // [N, C, H, W] -> [N, C, H + 2, W + 2]
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Adds elements of the given value around x. `widths` are those before and after the last axis, then those of the axis
// before it, and so on: {left, right, top, bottom}. A negative width removes elements. The batch axis stays as it is.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& widths, double value = 0);

}  // namespace lockstep
