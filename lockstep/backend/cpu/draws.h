// Many draws of a key at a time, by vector instructions.
#pragma once

#include <cstdint>

#include "lockstep/base/random.h"

namespace lockstep::cpu {

inline constexpr std::int64_t kDrawsAtOnce = 32;

// Writes draws 4 first_block, 4 first_block + 1, ... of random_bits(): `count` of them, rounded up to a multiple of
// kDrawsAtOnce.
void draw(RandomKey key, std::uint64_t first_block, std::int64_t count, std::uint32_t* draws);

// Draws the four words of 32 blocks: draws[32 w + i] = word w of block first_block + i * step.
void draw_across(RandomKey key, std::uint64_t first_block, std::uint64_t step, std::uint32_t* draws);

}  // namespace lockstep::cpu
