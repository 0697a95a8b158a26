#include "lockstep/ops/softmax.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

Tensor softmax(const Tensor& x) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::softmax(x.detach());
  return record("softmax", {x}, y,
                [y](const Node&, const Tensor& dy) { return std::vector<Tensor>{ops::softmax_backward(y, dy)}; });
}

Tensor log_softmax(const Tensor& x) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::log_softmax(x.detach());
  return record("log softmax", {x}, y,
                [y](const Node&, const Tensor& dy) { return std::vector<Tensor>{ops::log_softmax_backward(y, dy)}; });
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  ops::ShardScope scope(shard_of({logits}));
  Tensor x = logits.detach();
  double smoothing = options.label_smoothing;
  return record("cross entropy", {logits}, ops::cross_entropy(x, labels, smoothing),
                [x, labels, smoothing](const Node&, const Tensor& dy) {
                  return std::vector<Tensor>{ops::cross_entropy_backward(x, labels, smoothing, dy)};
                });
}

Tensor mse_loss(const Tensor& x, const Tensor& target) {
  ops::ShardScope scope(shard_of({x}));
  Tensor in = x.detach(), t = target.detach();
  return record("mse", {x, target}, ops::mse(in, t), [in, t](const Node& node, const Tensor& dy) {
    Tensor dx, dt;
    if (node.needs(0)) dx = ops::mse_backward(in, t, dy);
    if (node.needs(1)) dt = ops::mse_backward(t, in, dy);
    return std::vector<Tensor>{dx, dt};
  });
}

}  // namespace lockstep
