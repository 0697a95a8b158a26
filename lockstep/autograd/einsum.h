// Sums of products by Einstein's notation, as PyTorch's einsum().
//
//   Tensor scores = einsum("bhqd,bhkd->bhqk", {queries, keys});
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// A letter names an axis; equal letters are one axis, of equal extents or 1. Axes that the result does not name are
// summed over. Without "->", the result has the letters that occur once, in alphabetical order. "..." stands for axes
// that broadcast. A letter twice in one operand takes its diagonal. Spaces do not count.
//
// Operands are multiplied from the left to the right, as matrix products. An axis of samples may not be summed over.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);

}  // namespace lockstep
