// Internal: the types in which functions of tensors of different types compute: PyTorch's promotion.
#pragma once

#include <utility>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Both operands in one type, with their histories. Beside a floating type, whole numbers take that type; beside i64, u8
// becomes i64; beside any other type, bools take that type. Of two floating types, the wider one counts, and bf16
// beside f16 makes f32; but a tensor without axes takes the type of a tensor with axes if both are floating, or both
// whole. Equal types, and undefined operands, stay the same.
std::pair<Tensor, Tensor> promoted(const Tensor& a, const Tensor& b);
// Bools as i64. Other tensors stay the same.
Tensor counted(const Tensor& x);
// Whole numbers and bools as f32, for functions with floating results. Other tensors stay the same.
Tensor promoted_to_floating(const Tensor& x);

}  // namespace lockstep
