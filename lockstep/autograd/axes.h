// Internal: axes as users give them.
#pragma once

#include <string_view>

#include "lockstep/autograd/functions.h"

namespace lockstep {

// Bit mask of the axes in `dims`, or of all axes if `dims` is empty. As in PyTorch, a tensor without axes accepts axis
// 0 (or -1), which has no bit.
unsigned resolve_axes(std::string_view what, const Tensor& x, const Dims& dims);

// True if x has no axes and dim is its axis 0 (or -1).
inline bool is_axis_of_scalar(std::string_view what, const Tensor& x, int dim) {
  check(x.defined(), "{}: undefined tensor", what);
  if (x.shape().dim() > 0) return false;
  check(dim == 0 || dim == -1, "{}: axis {} of shape [], expected 0 or -1", what, dim);
  return true;
}

}  // namespace lockstep
