// Internal: pooling.
#pragma once

#include "lockstep/backend/pool.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

struct MaxPoolResult {
  Array y;
  Array where;  // i64: h * W + w of each maximum; what max_pool2d_backward needs
};
MaxPoolResult max_pool2d(const Array& x, const Pool2dOptions& options);
Array max_pool2d_backward(const Array& dy, const Array& where, const Shape& x_shape, const Pool2dOptions& options);

Array avg_pool2d(const Array& x, const Pool2dOptions& options);
Array avg_pool2d_backward(const Array& dy, const Shape& x_shape, const Pool2dOptions& options);

// [N, C, H, W] -> [N, C, 1, 1]
Array global_avg_pool2d(const Array& x);
// `layout` is that of the input whose gradient this is.
Array global_avg_pool2d_backward(const Array& dy, const Shape& x_shape, Layout layout);

}  // namespace lockstep::ops
