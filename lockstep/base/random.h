// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). Draw i under a key is a pure function of both, so the order of draws does not matter.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "lockstep/base/export.h"
#include "lockstep/base/plain_math.h"

namespace LOCKSTEP_API lockstep {

// 64 bits of key and the upper 64 bits of the counter; the lower 64 count the blocks of four numbers.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;

  bool operator==(const RandomKey&) const = default;
};

// Makes a key from words such as (step, shard, operation). For all practical purposes, no other words give the same
// key.
RandomKey random_key(std::uint64_t seed, std::initializer_list<std::uint64_t> words);
// FNV-1a, 64 bits: turns a name into a word.
std::uint64_t hash_name(std::string_view name);

// The four numbers of block `block`. Inline, so that the compiler vectorizes loops over blocks; constexpr, so that GPUs
// can call it.
constexpr std::array<std::uint32_t, 4> philox(RandomKey key, std::uint64_t block) {
  auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  std::array<std::uint32_t, 4> x{low(block), high(block), low(key.stream), high(key.stream)};
  std::uint32_t k0 = low(key.seed), k1 = high(key.seed);
  for (int round = 0; round < 10; ++round) {
    std::uint64_t a = std::uint64_t{0xD2511F53} * x[0];
    std::uint64_t b = std::uint64_t{0xCD9E8D57} * x[2];
    x = {high(b) ^ x[1] ^ k0, low(b), high(a) ^ x[3] ^ k1, low(a)};
    k0 += 0x9E3779B9;  // the golden ratio
    k1 += 0xBB67AE85;  // sqrt(3) - 1
  }
  return x;
}

// Turns the four numbers of a block into normal numbers (see random_normal). `sqrt` is a correctly rounded square root
// of a double: C++ and CUDA have none that both can call.
template <typename Sqrt>
constexpr std::array<double, 4> normal_block(const std::array<std::uint32_t, 4>& bits, const Sqrt& sqrt) {
  std::array<double, 4> normal{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    // The argument is in (0, 1), so the logarithm is finite.
    const double radius = sqrt(-2 * plain_log((bits[pair] + 0.5) * 0x1p-32));
    const UnitVector direction = plain_unit_vector(bits[pair + 1]);
    normal[pair] = radius * direction.cosine;
    normal[pair + 1] = radius * direction.sine;
  }
  return normal;
}
std::array<double, 4> normal_block(const std::array<std::uint32_t, 4>& bits);

// Draw i: 32 random bits, a float in [0, 1) with 24 bits, a standard normal number (Box-Muller on the pair of
// draws 2 * (i / 2) and 2 * (i / 2) + 1, cosine for even i, sine for odd; in double, rounded by the caller).
std::uint32_t random_bits(RandomKey key, std::uint64_t i);
double random_uniform(RandomKey key, std::uint64_t i);
double random_normal(RandomKey key, std::uint64_t i);
// An integer in [0, bound): the 64 bits of draws 2 * i (low) and 2 * i + 1 (high) as a fraction of 2^64,
// times bound, rounded down. The probabilities of two results differ by less than 2^-64. Error if bound is 0.
std::uint64_t random_below(RandomKey key, std::uint64_t i, std::uint64_t bound);

}  // namespace lockstep
