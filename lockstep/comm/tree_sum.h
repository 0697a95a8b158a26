// The reductions of all back ends: in the order of base/tree.h, so that they have the same bits everywhere.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/comm/process_group.h"

namespace lockstep {

// out = leaves[0] op leaves[1] op ..., in their tree; a null leaf lets its sibling pass unchanged, one is there.
// `out` may be one of the leaves. bf16 and f16 are widened to f32, reduced so, and rounded once. Integers wrap around.
// min and max are NaN where an element is.
void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> leaves, void* out, std::size_t count);

// The sum of bf16 leaves, each sum of two rounded to bf16: so that part of it may be taken elsewhere, and travel as bf16.
// `out`: f32 or bf16, and as above.
void rounded_tree_sum(std::span<const void* const> leaves, DType out_dtype, void* out, std::size_t count);

}  // namespace lockstep
