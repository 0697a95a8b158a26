#include "lockstep/backend/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "lockstep/backend/cpu/lanes.h"
#include "lockstep/base/random.h"

namespace lockstep::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The largest relative error of `actual` over 100000 points between low and high.
double worst_error(double low, double high, const std::function<float(float)>& actual,
                   const std::function<double(double)>& expected) {
  constexpr int kPoints = 100000;
  double worst = 0;
  for (int i = 0; i <= kPoints; ++i) {
    auto x = static_cast<float>(low + (high - low) * i / kPoints);
    double y = expected(x);
    worst = std::max(worst, y == 0 ? std::abs(actual(x)) : std::abs(actual(x) / y - 1));
  }
  return worst;
}

double exact_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(VectorMath, Exp) {
  EXPECT_LT(worst_error(-87, 88.7, fast_exp, [](double x) { return std::exp(x); }), 2e-7);
  EXPECT_EQ(fast_exp(0.f), 1.f);
  EXPECT_EQ(fast_exp(kInfinity), kInfinity);
  EXPECT_EQ(fast_exp(89.f), kInfinity);
  EXPECT_EQ(fast_exp(-kInfinity), 0.f);
  EXPECT_NEAR(fast_exp(-100.f) / std::numeric_limits<float>::denorm_min(), 26.5, 1.5);
  EXPECT_TRUE(std::isnan(fast_exp(kNan)));
}

TEST(VectorMath, Log) {
  EXPECT_LT(worst_error(0.01, 0.99, fast_log, [](double x) { return std::log(x); }), 3e-7);
  EXPECT_LT(worst_error(1.01, 100, fast_log, [](double x) { return std::log(x); }), 3e-7);
  EXPECT_LT(worst_error(1e30, 3e38, fast_log, [](double x) { return std::log(x); }), 2e-7);
  EXPECT_LT(worst_error(1e-44, 1e-37, fast_log, [](double x) { return std::log(x); }), 2e-7);
  EXPECT_EQ(fast_log(1.f), 0.f);
  EXPECT_EQ(fast_log(0.f), -kInfinity);
  EXPECT_EQ(fast_log(-0.f), -kInfinity);
  EXPECT_EQ(fast_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(fast_log(-1.f)));
  EXPECT_TRUE(std::isnan(fast_log(-kInfinity)));
  EXPECT_TRUE(std::isnan(fast_log(kNan)));
}

TEST(VectorMath, Tanh) {
  EXPECT_LT(worst_error(-10, 10, fast_tanh, [](double x) { return std::tanh(x); }), 4e-7);
  EXPECT_LT(worst_error(-1e-3, 1e-3, fast_tanh, [](double x) { return std::tanh(x); }), 2e-7);
  EXPECT_EQ(fast_tanh(kInfinity), 1.f);
  EXPECT_EQ(fast_tanh(-kInfinity), -1.f);
  EXPECT_TRUE(std::isnan(fast_tanh(kNan)));
}

TEST(VectorMath, NormalDistribution) {
  EXPECT_LT(worst_error(-4, 40, normal_cdf, exact_cdf), 2e-6);
  // Far out the error of x * x counts, times x * x / 2.
  EXPECT_LT(worst_error(-12, -4, normal_cdf, exact_cdf), 2e-5);
  EXPECT_EQ(normal_cdf(-kInfinity), 0.f);
  EXPECT_EQ(normal_cdf(kInfinity), 1.f);
  EXPECT_TRUE(std::isnan(normal_cdf(kNan)));
  EXPECT_LT(
      worst_error(-5, 5, normal_pdf, [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }),
      2e-6);
}

TEST(VectorMath, NearOne) {
  EXPECT_LT(worst_error(-2, 2, fast_expm1, [](double x) { return std::expm1(x); }), 4e-7);
  EXPECT_LT(worst_error(-1e-6, 1e-6, fast_expm1, [](double x) { return std::expm1(x); }), 2e-7);
  EXPECT_LT(worst_error(0, 1, fast_log1p, [](double x) { return std::log1p(x); }), 2e-7);
  EXPECT_LT(worst_error(-0.5, 0, fast_log1p, [](double x) { return std::log1p(x); }), 3e-7);
  EXPECT_LT(worst_error(0, 1e-6, fast_log1p, [](double x) { return std::log1p(x); }), 2e-7);
  EXPECT_TRUE(std::isnan(fast_expm1(kNan)));
}

// The largest error of sine and cosine, relative to the values, which come close to 0.
TEST(VectorMath, SineAndCosineOfEveryFloat) {
  const auto sine = [](double x) { return std::sin(x); };
  const auto cosine = [](double x) { return std::cos(x); };
  for (double high : {1e-30, 0.01, 1.0, 10.0, 1e4, 1e7, 1e12, 1e20, 3e38}) {
    EXPECT_LT(worst_error(-high, high, fast_sin, sine), 2e-7) << high;
    EXPECT_LT(worst_error(-high, high, fast_cos, cosine), 2e-7) << high;
  }
  // The floats next to multiples of pi / 2, where most is lost.
  for (int k = 1; k < 2000; ++k) {
    const auto x = static_cast<float>(k * std::numbers::pi / 2);
    EXPECT_NEAR(fast_sin(x) / std::sin(static_cast<double>(x)), 1, 2e-7) << k;
    EXPECT_NEAR(fast_cos(x) / std::cos(static_cast<double>(x)), 1, 2e-7) << k;
  }
  EXPECT_EQ(fast_sin(0.f), 0.f);
  EXPECT_EQ(fast_cos(0.f), 1.f);
  for (float x : {kInfinity, -kInfinity, kNan}) {
    EXPECT_TRUE(std::isnan(fast_sin(x)));
    EXPECT_TRUE(std::isnan(fast_cos(x)));
  }
}

TEST(VectorMath, Tangent) {
  for (double high : {1e-30, 0.01, 1.0, 10.0, 1e4, 1e12, 3e38}) {
    EXPECT_LT(worst_error(-high, high, fast_tan, [](double x) { return std::tan(x); }), 2e-7) << high;
  }
  for (float x : {kInfinity, -kInfinity, kNan}) EXPECT_TRUE(std::isnan(fast_tan(x)));
}

TEST(VectorMath, ErrorFunction) {
  EXPECT_LT(worst_error(-5, 5, fast_erf, [](double x) { return std::erf(x); }), 1e-7);
  EXPECT_LT(worst_error(-1e-6, 1e-6, fast_erf, [](double x) { return std::erf(x); }), 1e-7);
  EXPECT_EQ(fast_erf(kInfinity), 1.f);
  EXPECT_EQ(fast_erf(-kInfinity), -1.f);
  EXPECT_TRUE(std::signbit(fast_erf(-0.f)));
  EXPECT_TRUE(std::isnan(fast_erf(kNan)));
}

TEST(VectorMath, LogarithmsOfOtherBases) {
  for (const auto& [low, high] : {std::pair{1e-44, 1e-37}, {0.01, 0.99}, {1.01, 100.0}, {1e30, 3e38}}) {
    EXPECT_LT(worst_error(low, high, fast_log2, [](double x) { return std::log2(x); }), 1e-7);
    EXPECT_LT(worst_error(low, high, fast_log10, [](double x) { return std::log10(x); }), 1e-7);
  }
  for (int n = -149; n < 128; ++n) EXPECT_EQ(fast_log2(std::ldexp(1.f, n)), static_cast<float>(n));
  float ten = 1;
  for (int n = 0; n <= 10; ++n, ten *= 10) EXPECT_EQ(fast_log10(ten), static_cast<float>(n));
  for (auto* f : {fast_log2, fast_log10}) {
    EXPECT_EQ(f(0.f), -kInfinity);
    EXPECT_EQ(f(-0.f), -kInfinity);
    EXPECT_EQ(f(kInfinity), kInfinity);
    EXPECT_TRUE(std::isnan(f(-1.f)));
    EXPECT_TRUE(std::isnan(f(kNan)));
  }
}

TEST(VectorMath, AnglesOfPoints) {
  for (float x : {-1e30f, -3.f, -1.f, -0.3f, 1e-40f, 0.2f, 1.f, 7.f, 1e30f}) {
    const auto angle = [x](float y) { return fast_atan2(y, x); };
    for (double high : {1e-30, 1.0, 20.0, 1e30}) {
      if (x > 0 && high / x < 1e-30) continue;  // f32 has no such angles
      EXPECT_LT(worst_error(-high, high, angle, [x](double y) { return std::atan2(y, static_cast<double>(x)); }), 1e-7)
          << x;
    }
  }
  // As C has it.
  for (float y : {-kInfinity, -3.f, -0.f, 0.f, 0.5f, kInfinity, kNan}) {
    for (float x : {-kInfinity, -1.f, -0.f, 0.f, 2.f, kInfinity, kNan}) {
      const float expected = std::atan2(y, x), actual = fast_atan2(y, x);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << y << ", " << x;
      } else {
        EXPECT_FLOAT_EQ(actual, expected) << y << ", " << x;
        EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << y << ", " << x;
      }
    }
  }
}

TEST(VectorMath, Powers) {
  for (float y : {-40.f, -3.f, -0.5f, 0.3f, 1.f, 2.f, 7.5f, 30.f}) {
    const auto power = [y](float x) { return fast_pow(x, y); };
    EXPECT_LT(worst_error(0.15, 8, power, [y](double x) { return std::pow(x, y); }), 1e-7) << y;
  }
  // Up to the ends of the range, and below it.
  for (float x : {1e-44f, 1e-20f, 0.99f, 1.01f, 1e20f}) {
    const auto power = [x](float y) { return fast_pow(x, y); };
    const double most = 85 / std::abs(std::log(static_cast<double>(x)));
    EXPECT_LT(worst_error(-most, most, power, [x](double y) { return std::pow(static_cast<double>(x), y); }), 1e-7)
        << x;
  }
  EXPECT_NEAR(fast_pow(2.f, -140.f) / 0x1p-140, 1, 1e-7);
  EXPECT_EQ(fast_pow(10.f, 39.f), kInfinity);
  EXPECT_EQ(fast_pow(10.f, -50.f), 0.f);
  // As C has it.
  for (float x : {-kInfinity, -3.f, -1.f, -0.5f, -0.f, 0.f, 0.5f, 1.f, 3.f, kInfinity, kNan}) {
    for (float y : {-kInfinity, -3.f, -2.5f, -2.f, -1.f, -0.f, 0.f, 0.5f, 1.f, 2.f, 3.f, 0x1p24f, kInfinity, kNan}) {
      const float expected = std::pow(x, y), actual = fast_pow(x, y);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << x << "^" << y;
      } else {
        EXPECT_FLOAT_EQ(actual, expected) << x << "^" << y;
        EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << x << "^" << y;
      }
    }
  }
}

// All instruction sets compute the same bits.
TEST(Vectorized, GivesTheSameBitsWithAnyInstructions) {
  for (std::int64_t n : {1, 10, 15, 16, 100, 1003}) {
    std::vector<float> x(n);
    for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(random_normal({5, 6}, i));
    auto compute = [&](std::vector<double>& out) {
      vector_loop(0, n, [&](std::int64_t i) {
        out[i] = fast_exp(x[i]) + fast_tanh(x[i]) + normal_cdf(x[i]) + fast_sin(x[i]) + fast_cos(x[i]) +
                 fast_pow(x[i], 3.f) + fast_expm1(x[i]) + fast_log1p(std::abs(x[i])) + fast_tan(x[i]) + fast_erf(x[i]) +
                 fast_log2(std::abs(x[i])) + fast_log10(std::abs(x[i])) + fast_atan2(x[i], x[n - 1 - i]);
      });
      out[n] = lane_sum(n, [&](std::int64_t i) { return fast_exp(x[i]); });
      out[n + 1] = lane_max(n, [&](std::int64_t i) { return x[i]; });
    };
    std::vector<double> plain(n + 2), best(n + 2);
    compute(plain);
    vectorized([&] { compute(best); });
    EXPECT_EQ(plain, best) << n << " elements";
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (__builtin_cpu_supports("avx2")) {
      std::vector<double> avx2(n + 2);
      run_avx2([&] { compute(avx2); });
      EXPECT_EQ(plain, avx2) << n << " elements";
    }
#endif
  }
}

TEST(Lanes, SumEveryElementOnce) {
  for (std::int64_t n = 0; n < 100; ++n) {
    EXPECT_EQ(lane_sum(n, [](std::int64_t i) { return static_cast<double>(i + 1); }), n * (n + 1) / 2.0);
  }
}

TEST(Lanes, FindTheLargestWhereverItIs) {
  for (std::int64_t n = 1; n < 100; ++n) {
    for (std::int64_t place = 0; place < n; ++place) {
      EXPECT_EQ(lane_max(n, [=](std::int64_t i) { return i == place ? -1.f : -2.f - static_cast<float>(i); }), -1.f);
    }
  }
  EXPECT_EQ(lane_max(0, [](std::int64_t) { return 1.f; }), -kInfinity);
}

}  // namespace
}  // namespace lockstep::cpu
