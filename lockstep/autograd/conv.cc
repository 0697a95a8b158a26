#include "lockstep/ops/conv.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::conv2d(x.detach(), w.detach(), bias.detach(), options);
  const SavedTensor in(w.requires_grad(), x), weight(x.requires_grad(), w);
  return record("conv2d", {x, w, bias}, y,
                [in, weight, x_shape = x.shape(), w_shape = w.shape(), dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32, options](const Node& node,
                                                                                                  const Tensor& dy) {
                  Tensor dx;
                  ops::ConvWeightGrads grads;
                  if (node.needs(1)) {
                    grads = ops::conv2d_backward_weights(in.get(node.name), dy, w_shape, node.needs(2), options,
                                                         node.destination(1, dy.device()));
                  } else if (node.needs(2)) {
                    const std::int64_t channels = dy.size(1);
                    grads.bias = ops::reshape(
                        ops::sum_to(ops::convert(dy, dtype, Layout::plain), {1, channels, 1, 1}), {channels});
                  }
                  if (node.needs(0)) dx = ops::conv2d_backward_data(dy, weight.get(node.name), x_shape, options);
                  return std::vector<Tensor>{dx, grads.weight, grads.bias};
                });
}

}  // namespace lockstep
