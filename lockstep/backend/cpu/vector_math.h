// exp, log, tanh and the normal distribution in f32, free of branches and calls so that loops over them
// become vector instructions. Errors are a few units in the last place. The polynomials interpolate at
// Chebyshev nodes.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lockstep::cpu {

// c[0] + c[1] x + c[2] x^2 + ...
template <std::size_t N>
inline float polynomial(float x, const std::array<float, N>& c) {
  float y = c[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) y = y * x + c[i];
  return y;
}

// ln 2 in two parts; products of the first with small integers are exact.
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

// exp(x) = 2^n exp(r) with |r| <= ln(2) / 2.
inline float fast_exp(float x) {
  // Beyond these the result is 0 or infinity; NaN passes both comparisons.
  x = x < -104.f ? -104.f : x;
  x = x > 89.f ? 89.f : x;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits.
  constexpr float kRound = 0x1.8p23f;
  float shifted = x * 1.44269504f + kRound;
  float n = shifted - kRound;
  float r = (x - n * kLn2High) - n * kLn2Low;
  constexpr std::array c{0.5f, 0.166665734f, 0.0416665501f, 0.00836377387f, 0.00139269266f};
  float y = 1.f + (r + r * r * polynomial(r, c));
  // In two steps: 2^n itself may be too large or too small for a float.
  auto power =
      static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound));
  std::int32_t half = power >> 1;
  auto two_to = [](std::int32_t k) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(k + 127) << 23);
  };
  return y * two_to(half) * two_to(power - half);
}

// log(x) = e log(2) + log(m) with m in [sqrt(1/2), sqrt(2)) and log(m) = 2 artanh((m - 1) / (m + 1)).
inline float fast_log(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool subnormal = x < std::numeric_limits<float>::min();
  auto bits = std::bit_cast<std::uint32_t>(subnormal ? x * 0x1p23f : x);
  auto above = static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;  // sqrt(1/2)
  float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(above) << 23));
  float e = static_cast<float>(above) - (subnormal ? 23.f : 0.f);
  float s = (m - 1.f) / (m + 1.f);
  float z = s * s;
  float tail = s * z * polynomial(z, std::array{2.f / 3, 2.f / 5, 2.f / 7, 2.f / 9});
  float y = e * kLn2High + (2.f * s + (tail + e * kLn2Low));
  y = x < kInfinity ? y : x;  // infinity and NaN
  float outside = x < 0.f ? std::numeric_limits<float>::quiet_NaN() : -kInfinity;
  return x <= 0.f ? outside : y;
}

inline float fast_tanh(float x) {
  float a = std::abs(x), square = x * x;
  float large = std::copysign(1.f - 2.f / (fast_exp(2.f * a) + 1.f), x);
  // The other formula would cancel near 0.
  constexpr std::array c{-0.333333284f, 0.133327188f, -0.0538432632f, 0.0209613291f, -0.0060451651f};
  float small = x + x * square * polynomial(square, c);
  return a < 0.625f ? small : large;
}

// The standard normal distribution: its density, and Phi(x) by erfc(z) = exp(-z^2) t p(t) for z >= 0, with
// t = 1 / (1 + 0.4 z).
inline float normal_pdf(float x) { return 0.398942280f * fast_exp(-0.5f * x * x); }

inline float normal_cdf(float x) {
  float z = std::abs(x) * 0.707106781f;
  float t = 1.f / (1.f + 0.4f * z);
  constexpr std::array c{0.225625218f, 0.226614594f,  0.200535108f, 0.199175721f, 0.0650612696f,
                         0.11077085f,  0.0627995661f, -0.1295054f,  0.0389231129f};
  float tail = 0.5f * t * polynomial(t, c) * fast_exp(-0.5f * x * x);
  return x < 0.f ? tail : 1.f - tail;
}

}  // namespace lockstep::cpu
