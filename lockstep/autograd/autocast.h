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
// A net whose first layer is one of those computes what it does with images.to(DType::bf16), as in Trainer with
// TrainerOptions::dtype. f16 needs a LossScaler.
#pragma once

#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// For this thread, as long as it lives; without a type, turns an outer mode off. Throws for types other than bf16 and
// f16.
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
// As AutocastGuard, until the next call or the end of a guard that was made before.
void set_autocast_dtype(std::optional<DType> dtype);

// x in the mode's type, if x is f32, bf16, or f16; otherwise x. Differentiable. For operations of your own.
Tensor autocast(const Tensor& x);

}  // namespace lockstep
