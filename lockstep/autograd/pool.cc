#include "lockstep/ops/pool.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"

namespace lockstep {

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return lift("max pool", place_rows("max pool", {x}), {x}, [&](const Arrays& in) -> Lifted {
    auto [y, where] = ops::max_pool2d(in[0], options);
    return {y, [where = where, shape = in[0].shape(), options](const PartPass&, const Array& dy) -> Arrays {
              return {ops::max_pool2d_backward(dy, where, shape, options)};
            }};
  });
}

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return lift("avg pool", place_rows("avg pool", {x}), {x}, [&](const Arrays& in) -> Lifted {
    return {ops::avg_pool2d(in[0], options), [shape = in[0].shape(), options](const PartPass&, const Array& dy) -> Arrays {
              return {ops::avg_pool2d_backward(dy, shape, options)};
            }};
  });
}

Tensor global_avg_pool2d(const Tensor& x) {
  return lift("global avg pool", place_rows("global avg pool", {x}), {x}, [](const Arrays& in) -> Lifted {
    return {ops::global_avg_pool2d(in[0]),
            [shape = in[0].shape(), layout = in[0].layout()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::global_avg_pool2d_backward(dy, shape, layout)};
            }};
  });
}

}  // namespace lockstep
