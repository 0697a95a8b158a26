// Internal: the types in which functions of tensors of different types compute: PyTorch's promotion.
#pragma once

#include <utility>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Both operands in one type, with their histories. Beside a floating type, whole numbers take it; beside i64, u8 does.
// Of two floating types, the wider one counts, and f32 for bf16 beside f16; but a tensor without axes takes the other
// one's type. Equal types, and undefined operands, stay as they are.
std::pair<Tensor, Tensor> promoted(const Tensor& a, const Tensor& b);
// Whole numbers as f32, for functions whose results are none. Other tensors stay as they are.
Tensor promoted_to_floating(const Tensor& x);

}  // namespace lockstep
