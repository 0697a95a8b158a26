// Functions made of single IEEE operations, so they have the same bits on every machine, with every standard
// library, and on GPUs (compiled without contraction of a * b + c). Errors are about one ulp unless a function says
// otherwise.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// c[0] + c[1] x + c[2] x^2 + ...
template <std::size_t N>
constexpr double plain_polynomial(double x, const std::array<double, N>& c) {
  double y = c[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) y = y * x + c[i];
  return y;
}

// The natural logarithm of a positive number that is neither subnormal nor infinite: log(2^e m) with m in
// [sqrt(1/2), sqrt(2)) and log(m) = 2 artanh((m - 1) / (m + 1)).
constexpr double plain_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto e = static_cast<std::int64_t>(bits - 0x3fe6a09e667f3bcdu) >> 52;  // sqrt(1/2)
  const auto m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(e) << 52));
  const double s = (m - 1) / (m + 1), z = s * s, n = static_cast<double>(e);
  const std::array<double, 11> c{2. / 3,  2. / 5,  2. / 7,  2. / 9,  2. / 11, 2. / 13,
                                 2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23};
  // log 2 in two parts; products of the first with exponents are exact.
  constexpr double kHigh = 6.93147180369123816490e-01, kLow = 1.90821492927058770002e-10;
  return n * kHigh + (2 * s + (s * z * plain_polynomial(z, c) + n * kLow));
}

// e^x, and 0 below -700: 2^n e^r with |r| <= log(2) / 2 and a Taylor polynomial for e^r. x must be at most 700.
inline double plain_exp(double x) {
  if (!(x >= -700)) return 0;
  constexpr double kHigh = 6.93147180369123816490e-01, kLow = 1.90821492927058770002e-10;  // as in plain_log()
  const double n = std::floor(x * std::numbers::log2e + 0.5);
  const double r = (x - n * kHigh) - n * kLow;
  const std::array<double, 12> c{1. / 2,        1. / 6,         1. / 24,         1. / 120,
                                 1. / 720,      1. / 5040,      1. / 40320.,     1. / 362880.,
                                 1. / 3628800., 1. / 39916800., 1. / 479001600., 1. / 6227020800.};
  const double y = 1 + (r + r * r * plain_polynomial(r, c));
  return y * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + static_cast<std::int64_t>(n)) << 52);
}

// x^n for n >= 0, by repeated squaring. Unless it underflows, the relative error is about n * 2^-53 at most.
constexpr double plain_power(double x, std::int64_t n) {
  double y = 1;
  for (; n > 0; n /= 2, x *= x) {
    if (n % 2 == 1) y *= x;
  }
  return y;
}

struct UnitVector {
  double cosine, sine;
};

// The unit vector at `quarter` quarter turns and an angle x of at most an eighth of a turn.
constexpr UnitVector plain_unit_vector_near(std::uint32_t quarter, double x) {
  const double z = x * x;
  const std::array<double, 8> sine{-1. / 6,         1. / 120,         -1. / 5040,           1. / 362880,
                                   -1. / 39916800., 1. / 6227020800., -1. / 1307674368000., 1. / 355687428096000.};
  const std::array<double, 8> cosine{
      1. / 24,         -1. / 720,          1. / 40320,           -1. / 3628800,
      1. / 479001600., -1. / 87178291200., 1. / 20922789888000., -1. / 6402373705728000.};
  const double s = x + x * z * plain_polynomial(z, sine), c = 1 - z / 2 + z * z * plain_polynomial(z, cosine);
  switch (quarter & 3) {
    case 0: return {c, s};
    case 1: return {-s, c};
    case 2: return {-c, -s};
    default: return {s, -c};
  }
}

// The unit vector at angle `turn` / 2^32 of a full turn. The remainder within a quarter turn is exact.
constexpr UnitVector plain_unit_vector(std::uint32_t turn) {
  const std::uint32_t quarter = (turn + (1u << 29)) >> 30;
  return plain_unit_vector_near(quarter,
                                static_cast<std::int32_t>(turn - (quarter << 30)) * (2 * std::numbers::pi * 0x1p-32));
}

// The unit vector at an angle of `turns` full turns, from 0 to 2^48. The remainder within a quarter turn is exact.
constexpr UnitVector plain_unit_vector_at(double turns) {
  const auto quarter = static_cast<std::int64_t>(4 * turns + 0.5);
  const double rest = turns - static_cast<double>(quarter) / 4;
  return plain_unit_vector_near(static_cast<std::uint32_t>(quarter & 3), rest * (2 * std::numbers::pi));
}

}  // namespace lockstep
