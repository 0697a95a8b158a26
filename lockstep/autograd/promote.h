// Internal: the types in which functions of tensors of different types compute: PyTorch's promotion.
#pragma once

#include <utility>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Both operands in one type, with their histories. Beside a floating type, whole numbers take it; beside i64, u8 does;
// beside every other type, truth values do.
// Of two floating types, the wider one counts, and f32 for bf16 beside f16; but a tensor without axes takes the type of
// another one of its kind, floating or whole. Equal types, and undefined operands, stay as they are.
std::pair<Tensor, Tensor> promoted(const Tensor& a, const Tensor& b);
// Truth values as i64. Other tensors stay as they are.
Tensor counted(const Tensor& x);
// Whole numbers as f32, for functions whose results are none. Other tensors stay as they are.
Tensor promoted_to_floating(const Tensor& x);

}  // namespace lockstep
