#include "lockstep/ops/softmax.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

Tensor softmax(const Tensor& x) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::softmax(x.detach());
  return record("softmax", {x}, y, [saved = SavedTensor(y)](const Node& node, const Tensor& dy) {
    return std::vector<Tensor>{ops::softmax_backward(saved.get(node.name), dy)};
  });
}

Tensor log_softmax(const Tensor& x) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::log_softmax(x.detach());
  return record("log softmax", {x}, y, [saved = SavedTensor(y)](const Node& node, const Tensor& dy) {
    return std::vector<Tensor>{ops::log_softmax_backward(saved.get(node.name), dy)};
  });
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  ops::ShardScope scope(shard_of({logits}));
  const double smoothing = options.label_smoothing;
  Tensor loss = ops::cross_entropy(logits.detach(), labels, smoothing);
  return record("cross entropy", {logits}, loss,
                [x = SavedTensor(logits), y = SavedTensor(labels), smoothing](const Node& node, const Tensor& dy) {
                  return std::vector<Tensor>{
                      ops::cross_entropy_backward(x.get(node.name), y.get(node.name), smoothing, dy)};
                });
}

Tensor mse_loss(const Tensor& x, const Tensor& target) {
  ops::ShardScope scope(shard_of({x}));
  Tensor loss = ops::mse(x.detach(), target.detach());
  return record("mse", {x, target}, loss, [x = SavedTensor(x), y = SavedTensor(target)](const Node& node, const Tensor& dy) {
    const Tensor &in = x.get(node.name), &t = y.get(node.name);
    Tensor dx, dt;
    if (node.needs(0)) dx = ops::mse_backward(in, t, dy);
    if (node.needs(1)) dt = ops::mse_backward(t, in, dy);
    return std::vector<Tensor>{dx, dt};
  });
}

}  // namespace lockstep
