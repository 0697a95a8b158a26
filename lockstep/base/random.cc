#include "lockstep/base/random.h"

#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
constexpr std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

}  // namespace

// Philox is a bijection of (stream, word) under `seed`, so that keys which differ in one word alone never
// meet.
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

std::array<std::uint32_t, 4> philox(RandomKey key, std::uint64_t block) {
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

std::uint32_t random_bits(RandomKey key, std::uint64_t i) { return philox(key, i / 4)[i % 4]; }

double random_uniform(RandomKey key, std::uint64_t i) { return (random_bits(key, i) >> 8) * 0x1p-24; }

double random_normal(RandomKey key, std::uint64_t i) {
  auto x = philox(key, i / 4);
  std::size_t pair = i % 4 / 2 * 2;
  // In (0, 1): the logarithm is finite.
  double u = (x[pair] + 0.5) * 0x1p-32;
  double angle = 2 * std::numbers::pi * 0x1p-32 * x[pair + 1];
  return std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

std::uint64_t random_below(RandomKey key, std::uint64_t i, std::uint64_t bound) {
  check(bound > 0, "random_below: bound is 0, expected at least 1");
  auto x = philox(key, i / 2);
  std::size_t pair = i % 2 * 2;
  return static_cast<std::uint64_t>((Uint128{join(x[pair], x[pair + 1])} * bound) >> 64);
}

}  // namespace lockstep
