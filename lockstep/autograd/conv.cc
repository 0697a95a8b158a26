#include "lockstep/ops/conv.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  const bool saves_x = w.requires_grad(), saves_w = x.requires_grad();
  return lift("conv2d", place_rows("conv2d", {x}, {w, bias}), {x, w, bias}, [&](const Arrays& in) -> Lifted {
    // bf16 and f16 have f32 parameters.
    const DType dtype = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
    return {ops::conv2d(in[0], in[1], in[2], options),
            [x = SavedArray(saves_x, in[0]), w = SavedArray(saves_w, in[1]), x_shape = in[0].shape(),
             w_shape = in[1].shape(), dtype, options](const PartPass& p, const Array& dy) -> Arrays {
              Array dx;
              ops::ConvWeightGrads grads;
              if (p.needs(1)) {
                grads = ops::conv2d_backward_weights(x.get(p.name()), dy, w_shape, p.needs(2), options,
                                                     p.destination(1, dy.device()));
              } else if (p.needs(2)) {
                const std::int64_t channels = dy.size(1);
                grads.bias = ops::reshape(ops::sum_to(ops::convert(dy, dtype, Layout::plain), {1, channels, 1, 1}),
                                          {channels});
              }
              if (p.needs(0)) dx = ops::conv2d_backward_data(dy, w.get(p.name()), x_shape, options);
              return {dx, grads.weight, grads.bias};
            }};
  });
}

}  // namespace lockstep
