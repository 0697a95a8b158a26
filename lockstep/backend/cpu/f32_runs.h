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

// Calls f(first, count) for each run of `terms` terms: runs of kTerms, then what fills blocks of 16, then the rest. One
// empty run without any terms, because the sum is then zero.
template <typename F>
void for_each_run(std::int64_t terms, const F& f) {
  std::int64_t t = 0;
  do {
    const std::int64_t whole = std::min(kTerms, (terms - t) / kBlock * kBlock), run = whole > 0 ? whole : terms - t;
    f(t, run);
    t += run;
  } while (t < terms);
}

// Computes p for `terms` terms of its rows and of a packed tile, with steps of its own. p.ahead: from p.w to the
// weights that the next product reads.
inline void multiply_runs(RowProduct p, std::int64_t terms) {
  const float* const bias = p.bias;
  const std::int64_t ahead = p.ahead;
  p.steps = kRunSteps.data();
  for_each_run(terms, [&](std::int64_t t, std::int64_t run) {
    const bool blocks = run >= kBlock, last = t + run == terms;
    p.step_count = blocks ? run / kBlock : 1;
    p.terms = blocks ? kBlock : run;
    p.ahead = !last ? run * kTileColumns : ahead > 0 ? ahead - t * kTileColumns : 0;
    p.bias = last ? bias : nullptr;
    f32_kernels().row_product(p);
    p.accumulate = true;
    p.x += run, p.w += run * kTileColumns;
  });
}

// The same for rows that lie side by side: p.pixels has kTerms pairs, from a term of the rows and of the tile to the
// next. Equal bits.
inline void multiply_runs(PixelProduct p, std::int64_t terms) {
  const PixelPair step = p.pixels[1];
  for_each_run(terms, [&](std::int64_t, std::int64_t run) {
    p.pixel_count = run;
    f32_kernels().pixel_product(p);
    p.accumulate = true;
    p.x += run * step.x, p.y += run * step.y;
  });
}

}  // namespace lockstep::cpu
