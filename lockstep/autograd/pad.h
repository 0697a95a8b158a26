// Padding. nn/padding.h has the layers.
//
//   Tensor framed = pad(images, {1, 1, 1, 1});  // [N, C, H, W] -> [N, C, H + 2, W + 2]
//   Tensor mirrored = pad(images, {1, 1, 1, 1}, PadMode::reflect);
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// What is around x: a constant; its mirror image, without the edge itself; its edge; or its other end. PyTorch's
// functions call the first one "constant", its convolutions call it "zeros".
enum class PadMode : std::uint8_t { constant, zeros = constant, reflect, replicate, circular };

// Adds elements of the given value around x. `widths` has the widths before and after the last axis, then those of the
// axis before it, and so on: {left, right, top, bottom}. A negative width removes elements. Throws for the batch axis.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& widths, const Scalar& value = 0);
// The same in any mode; `value` is for the constant. Widths are below the extent for reflect, at most the extent for
// circular. Unlike in PyTorch, these modes pad any axes.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& widths, PadMode mode, const Scalar& value = 0);

}  // namespace lockstep
