// Your own differentiable functions. Lockstep calls forward() and backward() once, for any number of shards.
//
//   struct Square : Function {
//     SavedTensor x;
//     std::vector<Tensor> forward(std::span<const Tensor> in) override { x = in[0]; return {in[0] * in[0]}; }
//     std::vector<Tensor> backward(std::span<const Tensor> dy) override { return {x.get("Square") * dy[0] * 2}; }
//   };
//   Tensor y = apply<Square>(x);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// A tensor that backward() needs. It shares the memory of the forward pass, so a change in place between forward and
// backward would make the gradient wrong: get() reports it as an error.
class SavedTensor {
 public:
  SavedTensor() = default;
  // Saves t without its history, as it is now.
  SavedTensor(const Tensor& t);  // NOLINT(google-explicit-constructor)
  // Returns the tensor. Throws an Error that names the operation if one of its parts has been modified since.
  const Tensor& get(std::string_view operation) const;

 private:
  Tensor tensor_;
  std::vector<std::uint64_t> versions_;  // of the parts when they were saved
};

// One object serves one call, so members may keep values for backward(). Keep tensors as SavedTensor, which detects
// changes in place.
class Function {
 public:
  virtual ~Function() = default;
  // Computes the outputs. Runs without gradient recording.
  virtual std::vector<Tensor> forward(std::span<const Tensor> inputs) = 0;
  // Returns one gradient per input, with the input's shape, type, and placement, or an undefined tensor if there is
  // none. output_grads has one gradient per output in the same form. The gradient of an uncut input, such as a
  // parameter, must be summed over all samples, for example with sum_to().
  virtual std::vector<Tensor> backward(std::span<const Tensor> output_grads) = 0;
};

// Called by apply(). It has another name because a call of apply() with a shared_ptr would also find std::apply.
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
