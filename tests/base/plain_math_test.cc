#include "lockstep/base/plain_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/random.h"

namespace lockstep {
namespace {

TEST(PlainMath, LogarithmsOfTheNumbersThatBoxMullerNeeds) {
  auto expect_log = [](double x) { EXPECT_NEAR(plain_log(x), std::log(x), 4e-16 * std::abs(std::log(x))) << x; };
  for (double x : {0x1p-33, 1 - 0x1p-33, 0.5, 0.70710678118654746, 0.70710678118654757, 0.99999, 1.0, 3.0, 1e300}) {
    expect_log(x);
  }
  for (std::uint64_t i = 0; i < 10000; ++i) expect_log((random_bits({1, 2}, i) + 0.5) * 0x1p-32);
}

TEST(PlainMath, UnitVectors) {
  auto expect_vector = [](std::uint32_t turn) {
    const UnitVector v = plain_unit_vector(turn);
    const double angle = 2 * std::numbers::pi * 0x1p-32 * turn;
    EXPECT_NEAR(v.cosine, std::cos(angle), 1e-15) << turn;
    EXPECT_NEAR(v.sine, std::sin(angle), 1e-15) << turn;
  };
  // Full quarters are exact, and both sides of where one quarter's formula ends.
  EXPECT_EQ(plain_unit_vector(0).cosine, 1);
  EXPECT_EQ(plain_unit_vector(1u << 30).cosine, 0);
  EXPECT_EQ(plain_unit_vector(3u << 30).sine, -1);
  for (std::uint32_t eighth = 0; eighth < 8; ++eighth) {
    for (std::uint32_t near : {0u, 1u, ~0u}) expect_vector((eighth << 29) + near);
  }
  for (std::uint64_t i = 0; i < 10000; ++i) expect_vector(random_bits({1, 3}, i));
}

TEST(PlainMath, Exponentials) {
  auto expect_exp = [](double x) { EXPECT_NEAR(plain_exp(x), std::exp(x), 4e-16 * std::exp(x)) << x; };
  EXPECT_EQ(plain_exp(0), 1);
  // Both ends of a polynomial's range.
  for (double n : {-3, -1, 0, 1, 5}) {
    for (double near : {0.4999999, 0.5, 0.5000001}) expect_exp((n + near) * std::numbers::ln2);
  }
  for (double x : {-700.0, -0.5, -1e-9, 1e-300, 700.0}) expect_exp(x);
  for (std::uint64_t i = 0; i < 10000; ++i) expect_exp((random_bits({1, 4}, i) * 0x1p-32 - 0.5) * 1400);
}

TEST(PlainMath, UnitVectorsOfManyTurns) {
  EXPECT_EQ(plain_unit_vector_at(0.25).sine, 1);
  EXPECT_EQ(plain_unit_vector_at(1e6 + 0.5).cosine, -1);
  for (std::uint64_t i = 0; i < 10000; ++i) {
    // Some turns, of which the library's functions know the angle well, and many more.
    const double turns = random_bits({1, 5}, i) * 0x1p-30, angle = 2 * std::numbers::pi * turns;
    const UnitVector v = plain_unit_vector_at(turns), far = plain_unit_vector_at(turns + 0x1p20);
    EXPECT_NEAR(v.cosine, std::cos(angle), 5e-15) << turns;
    EXPECT_NEAR(v.sine, std::sin(angle), 5e-15) << turns;
    EXPECT_NEAR(far.cosine, v.cosine, 2e-9) << turns;
    EXPECT_NEAR(far.sine, v.sine, 2e-9) << turns;
  }
}

TEST(PlainMath, IntegerPowers) {
  for (double x : {0.9, 0.999, 1.5, -2.0}) EXPECT_EQ(plain_power(x, 0), 1) << x;
  // Exact as long as the result has at most 53 bits.
  EXPECT_EQ(plain_power(3, 33), 5559060566555523);
  EXPECT_EQ(plain_power(-2, 1023), -0x1p1023);
  EXPECT_EQ(plain_power(0.5, 1074), 0x1p-1074);
  EXPECT_EQ(plain_power(0, 5), 0);
  EXPECT_EQ(plain_power(1, std::numeric_limits<std::int64_t>::max()), 1);
  EXPECT_EQ(plain_power(0.999, std::int64_t{1} << 40), 0);
  for (double x : {0.9, 0.95, 0.98, 0.999}) {
    for (std::int64_t n : {1, 2, 3, 10, 255, 1000, 4097, 20000}) {
      const double expected = std::pow(x, static_cast<double>(n));
      EXPECT_NEAR(plain_power(x, n), expected, 1.2e-16 * static_cast<double>(n) * expected) << x << " " << n;
    }
  }
}

// Known once and for all: other machines, compilers and libraries must give the same.
TEST(PlainMath, IsTheSameEverywhere) {
  EXPECT_EQ(plain_log(0.3), -0x1.34378fcbda721p+0);
  EXPECT_EQ(plain_power(0.999, 777), 0x1.d6a2958545178p-2);
  EXPECT_EQ(plain_exp(1.5), 0x1.1ed3fe64fc541p+2);
  EXPECT_EQ(plain_unit_vector_at(1234.5678).cosine, -0x1.d23d913e6ae57p-1);
  EXPECT_EQ(plain_unit_vector_at(1234.5678).sine, -0x1.a7262dfc209p-2);
  EXPECT_EQ(plain_unit_vector(0x12345678).cosine, 0x1.cdbcfe320a3efp-1);
  EXPECT_EQ(plain_unit_vector(0x12345678).sine, 0x1.ba74afb2fd1adp-2);
}

}  // namespace
}  // namespace lockstep
