// Internal: random numbers from a counter: element i of a draw depends on (key, i) alone, never on threads or order.
// The formulas are computed in f64 as written and rounded once to the dtype (to bf16 and f16 through f32), so all back
// ends give the same bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lockstep/backend/kernels.h"
#include "lockstep/base/random.h"

namespace lockstep {

// Returns the key: from `key_at` if present, which the caller must be able to read, else `key`.
inline RandomKey current_key(RandomKey key, const View& key_at) {
  if (!key_at) return key;
  const auto* words = key_at.as<std::int64_t>();
  return {static_cast<std::uint64_t>(words[0]), static_cast<std::uint64_t>(words[1])};
}

// Number of leading bits of a draw that uniform numbers of this type have: as many as its significand, so that the
// largest one, 1 - 2^-bits, does not round to 1. 24 bits for f32 and f64.
template <typename T>
inline constexpr int kUniformBits = std::is_same_v<T, BFloat16>  ? 8
                                    : std::is_same_v<T, Float16> ? 11
                                                                 : 24;

// A draw as a number in [0, 1) that T holds exactly.
template <typename T>
constexpr double unit_uniform(std::uint32_t draw) {
  return (draw >> (32 - kUniformBits<T>)) * (1.0 / (1 << kUniformBits<T>));
}

namespace kernels {

// y[i] = low + (high - low) * unit_uniform<T>(random_bits(key, i)) for elements T, or low where that rounds to high, so
// that y is in [low, high). Any floating dtype, plain.
struct Uniform {
  RandomKey key;
  double low, high;
  View y;
  static void views(auto& c, const auto&, const auto& out) { out(c.y); }
};
// y[i] = mean + stddev * random_normal(key, i). Any floating dtype, plain.
struct Normal {
  RandomKey key;
  double mean, stddev;
  View y;
  static void views(auto& c, const auto&, const auto& out) { out(c.y); }
};

// y[i] = random_uniform(key, i) < keep ? x[i] * (1 / keep) : 0, with i in memory order. This is dropout and, with the
// same key, its backward pass. Same shape, dtype, and layout; y may be x. `key_at` is absent, or i64 [2] with the key's
// two words, which then replace `key`; a recorded step reads them there.
struct Dropout {
  RandomKey key;
  View key_at;
  double keep;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.key_at), in(c.x), out(c.y); }
};

}  // namespace kernels

using RandomKernels = Kernels<kernels::Uniform, kernels::Normal, kernels::Dropout>;

}  // namespace lockstep
