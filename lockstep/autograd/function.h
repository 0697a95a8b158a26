// Users' own differentiable functions, of logical tensors: each is called once, whatever number of shards its inputs have.
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

// One object for each call: members may keep what backward needs. A SavedTensor notices where it is changed in between.
class Function {
 public:
  virtual ~Function() = default;
  // Runs without recording.
  virtual std::vector<Tensor> forward(std::span<const Tensor> inputs) = 0;
  // Returns one gradient for each input, of its shape, type and placement, undefined if there is none; output_grads likewise.
  // The gradient of an input that is not cut (a parameter) is a sum over all samples: sum_to() makes one.
  virtual std::vector<Tensor> backward(std::span<const Tensor> output_grads) = 0;
};

// Not called apply: for a shared_ptr, argument-dependent look-up would find std::apply as well.
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
