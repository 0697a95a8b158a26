// Mixed precision as a mode: torch.autocast. Matrix products, convolutions, and recurrent layers read f32 inputs in
// bf16 or f16; all other operations keep the types of their inputs. Weights and their gradients stay f32.
//
//   Tensor loss;
//   {
//     const AutocastGuard autocast(DType::bf16);
//     loss = cross_entropy(net(images), labels);  // losses are computed in f32
//   }
//   loss.backward();
//
// If the first layer of a net is such an operation, the mode gives the same results as images.to(DType::bf16), as in
// Trainer with TrainerOptions::dtype. f16 needs a LossScaler.
#pragma once

#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Sets the mode of this thread while the guard lives; without a type, turns an outer mode off. Throws for types other
// than bf16 and f16.
class AutocastGuard {
 public:
  explicit AutocastGuard(std::optional<DType> dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  std::optional<DType> previous_;
};

std::optional<DType> autocast_dtype();
// Sets the mode as AutocastGuard does, until the next call or until a guard that was made earlier ends.
void set_autocast_dtype(std::optional<DType> dtype);

// Returns x in the mode's type if x is f32, bf16, or f16, otherwise x. Differentiable. Use it in your own operations.
Tensor autocast(const Tensor& x);

}  // namespace lockstep
