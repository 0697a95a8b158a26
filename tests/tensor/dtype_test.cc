#include "lockstep/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::testing {
namespace {

// The value of the number with these bits, by the definition of IEEE 754.
double binary16(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
  const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

std::uint16_t rounded(double x) { return Float16(static_cast<float>(x)).bits; }

constexpr std::uint32_t kInfinity = 0x7c00, kSign = 0x8000;

TEST(Float16, HasTheValueOfItsBitsAndComesBackFromIt) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 x;
    x.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(x);
    const std::uint32_t rest = bits & ~kSign;
    if (rest > kInfinity) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_EQ(Float16(value).bits, bits | 0x200) << "a NaN, and a quiet one";
    } else {
      EXPECT_EQ(value,
                rest == kInfinity ? std::copysign(std::numeric_limits<float>::infinity(), value) : binary16(bits));
      EXPECT_EQ(std::signbit(value), bits >= kSign) << bits;
      EXPECT_EQ(Float16(value).bits, bits);
    }
  }
}

// Between all neighbors, the largest and what would be next among them.
TEST(Float16, RoundsToNearestEven) {
  for (std::uint32_t below = 0; below < kInfinity; ++below) {
    const double a = binary16(below), b = binary16(below + 1);  // 65536 where infinity is
    const auto middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(middle, (a + b) / 2);
    const float before = std::nextafter(middle, 0.0f), after = std::nextafter(middle, 1e6f);
    for (const std::uint32_t sign : {0u, kSign}) {
      const float s = sign ? -1 : 1;
      EXPECT_EQ(rounded(s * before), sign | below) << below;
      EXPECT_EQ(rounded(s * middle), sign | (below + below % 2)) << below;
      EXPECT_EQ(rounded(s * after), sign | (below + 1)) << below;
    }
  }
}

TEST(Float16, IsInfiniteBeyondItsRange) {
  for (const double x : {65520.0, 65536.0, 1e10, 3.4e38, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(rounded(x), kInfinity);
    EXPECT_EQ(rounded(-x), kSign | kInfinity);
  }
  EXPECT_EQ(rounded(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(rounded(-std::numeric_limits<float>::denorm_min()), kSign);
}

TEST(Float16, IsKnownWhenCompiled) {
  static_assert(Float16(1.5f).bits == 0x3e00 && static_cast<float>(Float16(-0x1p-24f)) == -0x1p-24f);
  static_assert(Float16(1e6f).bits == kInfinity);
  EXPECT_EQ(name(DType::f16), "f16");
  EXPECT_EQ(item_size(DType::f16), sizeof(Float16));
  EXPECT_TRUE(is_floating(DType::f16) && is_half_dtype(DType::f16));
  EXPECT_EQ(dtype_of<Float16>, DType::f16);
}

}  // namespace
}  // namespace lockstep::testing
