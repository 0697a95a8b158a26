#include "lockstep/ops/conv.h"

#include <gtest/gtest.h>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/prepared.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

// The convolution is one for which Winograd's algorithm pays.
TEST(Conv2d, DirectSumsAreAnOptionOfTheRuntime) {
  Random random(1);
  const Array x = random.floats({8, 64, 14, 14}), w = random.floats({64, 64, 3, 3});
  const auto convolve = [&](const RuntimeOptions& options) {
    Runtime runtime(options);
    const Device device = runtime.devices()[0];
    return values(ops::conv2d(ops::to_device(x, device), ops::to_device(w, device), {}, {.padding = {1, 1}}));
  };
  const std::vector<double> direct = convolve({.direct_conv = true});
  EXPECT_EQ(direct, convolve({.direct_conv = true}));
  EXPECT_NE(direct, convolve({}));
  EXPECT_LT(distance(convolve({}), direct), 1e-5);
}

// Sizes of images change the algorithm at most.
TEST(Conv2d, ImagesOfAnySizeSharePreparedWeights) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array w = ops::to_device(random.floats({16, 16, 3, 3}), device);
  const Array x = ops::to_device(random.floats({1, 16, 6, 6}), device);
  const auto convolve = [&] { return values(ops::conv2d(x, w, {}, {.padding = {1, 1}})); };
  const std::vector<double> expected = convolve();
  const auto prepared = [&] { return ops::PreparedWeights::of(*w.storage()).results.size(); };
  ASSERT_GT(prepared(), 0u) << "a convolution whose weights are prepared shows it";
  for (int size = 7; size < 107; ++size) {
    ops::conv2d(ops::to_device(random.floats({1, 16, size, 6}), device), w, {},
                {.stride = {1 + size % 2, 1}, .padding = {1, 1}});
  }
  EXPECT_LE(prepared(), 2u);
  EXPECT_EQ(convolve(), expected);
}

// Kernels and channels of size 0 leave nothing to sum.
TEST(Conv2d, AnEmptyWeightIsAnError) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  const auto zeros = [&](const Shape& shape) { return ops::to_device(Array::host(shape), device); };
  for (const Shape& w : {Shape{8, 3, 0, 0}, Shape{8, 3, 1, 0}, Shape{0, 3, 1, 1}}) {
    EXPECT_ERROR(ops::conv2d(zeros({1, 3, 4, 4}), zeros(w), {}), fmt::format("weight is {}, expected at least one", w));
  }
  EXPECT_ERROR(ops::conv2d(zeros({1, 0, 4, 4}), zeros({8, 0, 3, 3}), {}), "weight is [8, 0, 3, 3]");
}

}  // namespace
}  // namespace lockstep::testing
