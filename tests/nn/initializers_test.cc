
#include <cmath>
#include <limits>

#include "lockstep/nn/linear.h"
#include "lockstep/nn/parameter.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

std::vector<float> start_values(const Runtime& runtime, const Initializer& initializer) {
  Parameter p(ParameterOptions{.shape = {1000}});
  p.initialize("w", runtime.devices(), initializer, 1);
  return p.host_data().to_vector<float>();
}

TEST(Initializer, UniformOfOneNumberLiesOnBothSidesOfZero) {
  Runtime runtime(small_devices(1));
  for (const Uniform& uniform : {Uniform{0.2}, Uniform(0.2), Uniform(-0.2, 0.2)}) {
    const std::vector<float> w = start_values(runtime, uniform);
    const auto [least, most] = std::ranges::minmax(w);
    EXPECT_GE(least, -0.2F);
    EXPECT_LT(least, -0.19F);
    EXPECT_LE(most, 0.2F);
    EXPECT_GT(most, 0.19F);
    EXPECT_EQ(w, start_values(runtime, Uniform{0.2}));
  }
  const auto [least, most] = std::ranges::minmax(start_values(runtime, Uniform{}));
  EXPECT_LT(least, -0.06F);
  EXPECT_GT(most, 0.06F);
}

TEST(Initializer, UniformOfTwoLiesBetweenThem) {
  Runtime runtime(small_devices(1));
  const auto [least, most] = std::ranges::minmax(start_values(runtime, Uniform{2, 3}));
  EXPECT_GE(least, 2);
  EXPECT_LE(most, 3);
  EXPECT_EQ(start_values(runtime, Uniform{2, 2}), std::vector<float>(1000, 2));
}

TEST(Initializer, ArgumentsAreChecked) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_ERROR(Uniform(0.2, 0.07), "uniform: from 0.2 to 0.07, expected finite numbers in ascending order");
  EXPECT_ERROR(Uniform(0, inf), "uniform: from 0 to inf");
  EXPECT_ERROR(Uniform(nan, 1), "uniform: from nan to 1");
  EXPECT_ERROR(Uniform(-0.1), "uniform: scale -0.1, expected a finite number, at least 0");
  EXPECT_ERROR(Uniform{inf}, "uniform: scale inf");
  EXPECT_ERROR(Normal(-1),
               "normal: standard deviation -1, mean 0, expected finite numbers and a deviation of at least 0");
  EXPECT_ERROR(Normal(1, nan), "normal: standard deviation 1, mean nan");
  EXPECT_ERROR(Normal{inf}, "normal: standard deviation inf");
  EXPECT_ERROR(Constant{nan}, "constant: nan, expected a finite number");
}

std::vector<double> weights(const Runtime& runtime, const Initializer& initializer, const Shape& shape) {
  Parameter p(ParameterOptions{.shape = shape});
  p.initialize("w", runtime.devices(), initializer, 1);
  const auto values = p.host_data().to_vector<float>();
  return {values.begin(), values.end()};
}

double deviation(const std::vector<double>& values) {
  double squares = 0;
  for (double v : values) squares += v * v;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(Initializer, XavierAndKaimingBothWays) {
  Runtime runtime(small_devices(1));
  const Shape shape{100, 40, 2, 3};  // fan_in 240, fan_out 600
  const auto expect = [&](const Initializer& initializer, double expected, bool uniform) {
    const std::vector<double> w = weights(runtime, initializer, shape);
    EXPECT_NEAR(deviation(w), expected, 0.02 * expected);
    const double most = std::ranges::max(w);
    // A uniform number is at most sqrt(3) times the deviation, and gets near that; a normal one goes beyond.
    EXPECT_EQ(most <= std::sqrt(3) * expected * 1.0001, uniform);
    EXPECT_GT(most, std::sqrt(3) * expected * 0.98);
  };
  expect(XavierUniform{}, std::sqrt(2.0 / 840), true);
  expect(XavierUniform{3}, 3 * std::sqrt(2.0 / 840), true);
  expect(XavierNormal{}, std::sqrt(2.0 / 840), false);
  expect(XavierNormal{3}, 3 * std::sqrt(2.0 / 840), false);
  expect(KaimingUniform{}, std::sqrt(2.0 / 240), true);
  expect(KaimingUniform({.a = std::sqrt(5)}), std::sqrt(1.0 / 3 / 240), true);
  expect(KaimingNormal({.mode = FanMode::fan_out}), std::sqrt(2.0 / 600), false);
  expect(KaimingNormal{}, std::sqrt(2.0 / 240), false);
  EXPECT_ERROR(XavierUniform{INFINITY}, "xavier: gain or slope inf, expected a finite number");
}

TEST(Initializer, TruncatedNormalIsNormalBetweenItsBounds) {
  Runtime runtime(small_devices(1));
  // Deviations by integration of the density.
  const auto expect = [&](const TruncatedNormal& initializer, double mean, double expected) {
    std::vector<double> w = weights(runtime, initializer, {200, 100});
    double sum = 0;
    for (double v : w) {
      EXPECT_GE(v, initializer.options.a - 1e-6);
      EXPECT_LE(v, initializer.options.b + 1e-6);
      sum += v;
    }
    EXPECT_NEAR(sum / 20000, mean, 0.03 * expected);
    for (double& v : w) v -= sum / 20000;
    EXPECT_NEAR(deviation(w), expected, 0.02 * expected);
  };
  expect(TruncatedNormal{}, 0, 0.8796);
  expect(TruncatedNormal({.mean = 0.01, .stddev = 0.02, .a = -0.03, .b = 0.05}), 0.01, 0.02 * 0.8796);
  expect(TruncatedNormal({.a = -8, .b = 8}), 0, 1);
  expect(TruncatedNormal({.a = 0, .b = 9}), 0.7979, 0.6028);
  expect(TruncatedNormal({.a = 1, .b = 2}), 1.3832, 0.2697);
  EXPECT_ERROR(TruncatedNormal({.a = 3, .b = 4}),
               "truncated normal: mean 0, expected it within two standard deviations (1)");
  EXPECT_ERROR(TruncatedNormal({.stddev = 0}), "truncated normal: standard deviation 0");
  EXPECT_ERROR(TruncatedNormal({.a = 2, .b = -2}), "truncated normal: standard deviation 1, mean 0, from 2 to -2");
}

TEST(Initializer, OrthogonalRowsOrColumns) {
  Runtime runtime(small_devices(2));
  for (const Shape& shape : {Shape{5, 2, 4}, Shape{7, 3}, Shape{4, 4}}) {
    const std::vector<double> w = weights(runtime, Orthogonal{3}, shape);
    const std::int64_t rows = shape[0], columns = shape.numel() / rows;
    const bool wide = rows <= columns;
    const std::int64_t count = std::min(rows, columns), length = std::max(rows, columns);
    const auto at = [&](std::int64_t vector, std::int64_t i) {
      return w[static_cast<std::size_t>(wide ? vector * columns + i : i * columns + vector)];
    };
    for (std::int64_t a = 0; a < count; ++a) {
      for (std::int64_t b = 0; b < count; ++b) {
        double product = 0;
        for (std::int64_t i = 0; i < length; ++i) product += at(a, i) * at(b, i);
        EXPECT_NEAR(product, a == b ? 9 : 0, 1e-5);
      }
    }
  }
  EXPECT_ERROR(weights(runtime, Orthogonal{}, {4}), "orthogonal: the parameter is [4], expected at least 2 axes");
}

TEST(Initializer, FollowsTheSeedOfTheRuntime) {
  const auto weights = [](std::uint64_t runtime_seed, InitializeOptions options) {
    Runtime runtime({.seed = runtime_seed});
    Linear net({.in_features = 3, .out_features = 2});
    net.initialize(Normal{1}, runtime.devices(), options);
    return net.weight.host_data().to_vector<float>();
  };
  EXPECT_EQ(weights(7, {}), weights(0, {.seed = 7}));
  EXPECT_EQ(weights(7, {.seed = 3}), weights(0, {.seed = 3}));
  EXPECT_NE(weights(7, {}), weights(0, {}));
}

}  // namespace
}  // namespace lockstep::testing
