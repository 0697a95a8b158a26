// Sums of many terms: partial sums of kTerms terms, each of which starts from zero and is added to those before it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/backend/cpu/f32_kernels.h"

namespace lockstep::cpu {

// Terms of a partial sum. Affects the bits.
inline constexpr std::int64_t kTerms = 128;

// A run of kTerms terms of a row and of a packed tile, in steps of 16: row_product unrolls such steps, and prefetches
// the weights of the next run with them.
inline constexpr auto kRunSteps = [] {
  std::array<Step, kTerms / kBlock> steps{};
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto term = static_cast<std::int64_t>(s) * kBlock;
    steps[s] = {term, term * kTileColumns};
  }
  return steps;
}();

// Computes p for `terms` terms of its rows and of a packed tile, with steps of its own. Terms that do not fill a block
// are a separate run. Without any terms, the sum is zero. p.ahead: from p.w to the weights that the next product reads.
inline void multiply_runs(RowProduct p, std::int64_t terms) {
  const float* const bias = p.bias;
  const std::int64_t ahead = p.ahead;
  p.steps = kRunSteps.data();
  std::int64_t t = 0;
  do {
    const std::int64_t whole = std::min(kTerms, (terms - t) / kBlock * kBlock), run = whole > 0 ? whole : terms - t;
    p.step_count = whole > 0 ? whole / kBlock : 1;
    p.terms = whole > 0 ? kBlock : run;
    const bool last = t + run == terms;
    p.ahead = !last ? run * kTileColumns : ahead > 0 ? ahead - t * kTileColumns : 0;
    p.bias = last ? bias : nullptr;
    f32_kernels().row_product(p);
    p.accumulate = true;
    t += run, p.x += run, p.w += run * kTileColumns;
  } while (t < terms);
}

}  // namespace lockstep::cpu
