#include "lockstep/base/random.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"

namespace lockstep {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

}  // namespace

// Philox is a bijection of (stream, word) under `seed`, so keys that differ in one word never collide.
RandomKey random_key(std::uint64_t seed, std::initializer_list<std::uint64_t> words) {
  RandomKey key{seed, words.size()};
  for (std::uint64_t word : words) {
    auto x = philox(key, word);
    key = {join(x[0], x[1]), join(x[2], x[3])};
  }
  return key;
}

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::uint32_t random_bits(RandomKey key, std::uint64_t i) { return philox(key, i / 4)[i % 4]; }

double random_uniform(RandomKey key, std::uint64_t i) { return (random_bits(key, i) >> 8) * 0x1p-24; }

std::array<double, 4> normal_block(const std::array<std::uint32_t, 4>& bits) {
  return normal_block(bits, [](double x) { return std::sqrt(x); });
}

double random_normal(RandomKey key, std::uint64_t i) { return normal_block(philox(key, i / 4))[i % 4]; }

std::uint64_t random_below(RandomKey key, std::uint64_t i, std::uint64_t bound) {
  check(bound > 0, "random_below: bound is 0, expected at least 1");
  auto x = philox(key, i / 2);
  std::size_t pair = i % 2 * 2;
  return static_cast<std::uint64_t>((Uint128{join(x[pair], x[pair + 1])} * bound) >> 64);
}

}  // namespace lockstep
