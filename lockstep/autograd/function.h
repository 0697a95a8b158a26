// Users' own differentiable functions of logical tensors. Each is called once, whatever the number of shards.
//
//   struct Square : Function {
//     SavedTensor x;
//     std::vector<Tensor> forward(std::span<const Tensor> in) override { x = in[0]; return {in[0] * in[0]}; }
//     std::vector<Tensor> backward(std::span<const Tensor> dy) override { return {x.get("Square") * dy[0] * 2}; }
//   };
//   Tensor y = apply<Square>(x);
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// One object per call; members may keep values for backward. A SavedTensor detects a change in between.
class Function {
 public:
  virtual ~Function() = default;
  // Runs without recording.
  virtual std::vector<Tensor> forward(std::span<const Tensor> inputs) = 0;
  // Returns one gradient for each input, with its shape, type, and placement; undefined if there is none. output_grads
  // likewise. The gradient of an input that is not cut, such as a parameter, is a sum over all samples; sum_to() makes
  // one.
  virtual std::vector<Tensor> backward(std::span<const Tensor> output_grads) = 0;
};

// Not named apply, because argument-dependent lookup for a shared_ptr would also find std::apply.
std::vector<Tensor> apply_function(std::shared_ptr<Function> function, std::span<const Tensor> inputs);

// For functions of one output.
template <typename F, typename... Inputs>
Tensor apply(const Inputs&... inputs) {
  std::vector<Tensor> all{inputs...};
  std::vector<Tensor> outputs = apply_function(std::make_shared<F>(), all);
  check(outputs.size() == 1, "function: {} outputs, expected one", outputs.size());
  return outputs[0];
}

}  // namespace lockstep
