// Pooling.
#pragma once

#include "lockstep/backend/pool.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

struct MaxPoolResult {
  Tensor y;
  Tensor where;  // i64: h * W + w of each maximum; what max_pool2d_backward needs
};
MaxPoolResult max_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor max_pool2d_backward(const Tensor& dy, const Tensor& where, const Shape& x_shape, const Pool2dOptions& options);

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d_backward(const Tensor& dy, const Shape& x_shape, const Pool2dOptions& options);

// [N, C, H, W] -> [N, C, 1, 1]
Tensor global_avg_pool2d(const Tensor& x);
// `layout` is that of the input whose gradient this is.
Tensor global_avg_pool2d_backward(const Tensor& dy, const Shape& x_shape, Layout layout);

}  // namespace lockstep::ops
