#include "lockstep/nn/initializer.h"

#include <cmath>
#include <limits>

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

}  // namespace
}  // namespace lockstep::testing
