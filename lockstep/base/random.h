// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). Draw i under a key is a pure function of both, so the order of draws does not matter.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// `seed` is Philox's 64-bit key; `stream` is the upper half of its counter. The lower half counts blocks of four draws.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;

  bool operator==(const RandomKey&) const = default;
};

// Makes a key from words such as (step, shard, operation). Different words give different keys (collisions are
// negligible).
RandomKey random_key(std::uint64_t seed, std::initializer_list<std::uint64_t> words);
// FNV-1a, 64 bits: turns a name into a word.
std::uint64_t hash_name(std::string_view name);

// Draw i under a key. random_bits: 32 bits. random_uniform: in [0, 1), with 24 bits. random_normal: Box-Muller in
// double on draws 2 * (i / 2) and 2 * (i / 2) + 1; even i take the cosine, odd i the sine.
std::uint32_t random_bits(RandomKey key, std::uint64_t i);
double random_uniform(RandomKey key, std::uint64_t i);
double random_normal(RandomKey key, std::uint64_t i);
// An integer in [0, bound): the 64 bits of draws 2 * i (low) and 2 * i + 1 (high) as a fraction of 2^64, times the
// bound, rounded down. The probabilities of two results differ by less than 2^-64. Throws if the bound is 0.
std::uint64_t random_below(RandomKey key, std::uint64_t i, std::uint64_t bound);

}  // namespace lockstep
