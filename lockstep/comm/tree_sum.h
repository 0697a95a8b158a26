// Internal: the reductions of all transports, in the order of base/tree.h, so that they have the same bits everywhere.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/comm/process_group.h"

namespace lockstep {

// Computes out = leaves[0] op leaves[1] op ... in their tree. A null leaf lets its sibling pass unchanged; at least one
// leaf is not null. `out` may alias one of the leaves. bf16 and f16 are widened to f32, reduced, and rounded once.
// Integers wrap around. min and max return NaN if an element is NaN.
void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> leaves, void* out, std::size_t count);

// Sums bf16 leaves and rounds each sum of two to bf16, so that another rank may compute the sum of a subtree and send
// it as bf16. `out` is f32 or bf16; otherwise as above.
void rounded_tree_sum(std::span<const void* const> leaves, DType out_dtype, void* out, std::size_t count);

}  // namespace lockstep
