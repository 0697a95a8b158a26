#include "lockstep/autograd/function.h"

#include "lockstep/autograd/node.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

std::vector<Tensor> apply_function(std::shared_ptr<Function> function, std::span<const Tensor> inputs) {
  std::vector<Tensor> outputs;
  {
    NoGradGuard no_grad;
    ops::ShardScope scope(shard_of(inputs));
    std::vector<Tensor> detached;
    for (const Tensor& input : inputs) detached.push_back(input.detach());
    outputs = function->forward(detached);
    // A forward that returns its input must not give the input itself a history.
    for (Tensor& output : outputs) output = output.detach();
  }
  return record("function", inputs, std::move(outputs), [function](const Node&, std::span<const Tensor> grads) {
    return function->backward(grads);
  });
}

}  // namespace lockstep
