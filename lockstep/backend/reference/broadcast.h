// Broadcasting as in NumPy, one element at a time.
#pragma once

#include <cstdint>

#include "lockstep/tensor/shape.h"

namespace lockstep::reference {

// Returns the index, in a plain array of shape `from`, of the source of element i of its broadcast to shape `to`.
inline std::int64_t broadcast_source(const Shape& from, const Shape& to, std::int64_t i) {
  std::int64_t source = 0, stride = 1;
  for (int axis = 1; axis <= from.dim(); ++axis) {
    std::int64_t extent = from[-axis];
    if (extent != 1) source += i % to[-axis] * stride;
    i /= to[-axis];
    stride *= extent;
  }
  return source;
}

}  // namespace lockstep::reference
