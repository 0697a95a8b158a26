// Internal: the exponential function with the same bits on every machine, as the functions of base/plain_math.h.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "lockstep/base/plain_math.h"

namespace lockstep {

// Returns e^x with an error of about one ulp, and 0 below -700. x must be at most 700.
inline double plain_exp(double x) {
  if (!(x > -700)) return 0;
  // log 2 in two parts; products of the first with exponents are exact.
  constexpr double kHigh = 6.93147180369123816490e-01, kLow = 1.90821492927058770002e-10;
  const double n = std::floor(x * std::numbers::log2e + 0.5);
  const double r = (x - n * kHigh) - n * kLow;
  const std::array<double, 12> c{1. / 2,        1. / 6,         1. / 24,         1. / 120,
                                 1. / 720,      1. / 5040,      1. / 40320.,     1. / 362880.,
                                 1. / 3628800., 1. / 39916800., 1. / 479001600., 1. / 6227020800.};
  const double y = 1 + (r + r * r * plain_polynomial(r, c));
  return y * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + static_cast<std::int64_t>(n)) << 52);
}

}  // namespace lockstep
