// bf16 and f16 in loops of f32: elements are widened and rounded in pieces that stay in the first-level cache, so no
// loop is compiled for them.
#pragma once

#include <cstdint>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

// Number of elements that are computed at once.
inline constexpr std::int64_t kPiece = 1024;

// y = x, for n elements.
void widen(const BFloat16* x, std::int64_t n, float* y);
void widen(const Float16* x, std::int64_t n, float* y);
// y = x, rounded to nearest, ties to even.
void narrow(const float* x, std::int64_t n, BFloat16* y);
void narrow(const float* x, std::int64_t n, Float16* y);

}  // namespace lockstep::cpu
