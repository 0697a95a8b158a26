// Internal: the generator behind random.h, in blocks of four draws, for kernels that fill arrays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/plain_math.h"
#include "lockstep/base/random.h"

namespace lockstep {

// The four draws of block `block`. Inline, so that the compiler vectorizes loops over blocks; constexpr, so that GPUs
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

// Turns the four draws of a block into normal random numbers (see random_normal). `sqrt` is a correctly rounded square
// root of a double: C++ and CUDA have none that both can call.
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

}  // namespace lockstep
