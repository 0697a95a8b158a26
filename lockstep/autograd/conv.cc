#include "lockstep/ops/conv.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  ops::ShardScope scope(shard_of({x}));
  Tensor in = x.detach(), weight = w.detach();
  Tensor y = ops::conv2d(in, weight, bias.detach(), options);
  return record("conv2d", {x, w, bias}, y, [in, weight, options](const Node& node, const Tensor& dy) {
    Tensor dx;
    ops::ConvWeightGrads grads;
    if (node.needs(1) || node.needs(2)) {
      grads = ops::conv2d_backward_weights(in, dy, weight.shape(), node.needs(2), options,
                                           node.destination(1, weight.device()));
    }
    if (node.needs(0)) dx = ops::conv2d_backward_data(dy, weight, in.shape(), options);
    return std::vector<Tensor>{dx, grads.weight, grads.bias};
  });
}

}  // namespace lockstep
