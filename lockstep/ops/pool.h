// Internal: pooling.
#pragma once

#include <vector>

#include "lockstep/backend/pool.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// The shape of x after pooling. Throws if the windows do not fit.
Shape pooled_shape(std::string_view what, const Array& x, const Pool2dOptions& options);

// Pools x by a kernel of backend/pool.h, whose call has its options:
//   pool2d("avg_pool2d", x, kernels::AvgPool{options})
template <typename Call>
Array pool2d(std::string_view what, const Array& x, Call call) {
  Array y = empty(pooled_shape(what, x, call.options), x.dtype(), x.device(), x.layout());
  call.x = x.view(), call.y = y.view();
  launch(what, {x}, {y}, std::move(call));
  return y;
}
// The gradient of an x of this shape. The call has its options and the views of `saved`, arrays of one layout.
template <typename Call>
Array pool2d_backward(std::string_view what, const Array& dy, const Shape& x_shape, Call call,
                      std::vector<Array> saved = {}) {
  saved.push_back(saved.empty() ? dy : to_layout(dy, saved[0].layout()));
  const Array& g = saved.back();
  Array dx = empty(x_shape, g.dtype(), g.device(), g.layout());
  call.dy = g.view(), call.dx = dx.view();
  launch(what, saved, std::vector{dx}, std::move(call));
  return dx;
}

struct MaxPoolResult {
  Array y;
  Array where;  // i64: h * W + w of each maximum; what the gradient needs
};
MaxPoolResult max_pool2d(const Array& x, const Pool2dOptions& options);

// [N, C, H, W] -> [N, C, 1, 1]
Array global_avg_pool2d(const Array& x);
// `layout` is the layout of the input whose gradient this is.
Array global_avg_pool2d_backward(const Array& dy, const Shape& x_shape, Layout layout);

}  // namespace lockstep::ops
