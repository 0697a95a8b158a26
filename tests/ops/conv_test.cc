#include "lockstep/ops/conv.h"

#include <gtest/gtest.h>

#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/storage.h"
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
    return values(ops::conv2d(x.to(device), w.to(device), {}, {.padding = {1, 1}}));
  };
  const std::vector<double> direct = convolve({.direct_conv = true});
  EXPECT_EQ(direct, convolve({.direct_conv = true}));
  EXPECT_NE(direct, convolve({}));
  EXPECT_LT(distance(convolve({}), direct), 1e-5);
}

// They depend on the size of the images, which may be different in each call.
TEST(Conv2d, PreparedWeightsHaveALimit) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array w = random.floats({16, 16, 3, 3}).to(device);
  const Array x = random.floats({1, 16, 6, 6}).to(device);
  const auto convolve = [&] { return values(ops::conv2d(x, w, {}, {.padding = {1, 1}})); };
  const std::vector<double> expected = convolve();
  const std::size_t one = w.storage()->derived.size();
  ASSERT_GT(one, 0u) << "a convolution whose weights are prepared shows the limit";
  for (int size = 7; size < 107; ++size) {
    ops::conv2d(random.floats({1, 16, size, 6}).to(device), w, {}, {.padding = {1, 1}});
  }
  EXPECT_LE(w.storage()->derived.size(), 16u);
  EXPECT_EQ(convolve(), expected);
}

}  // namespace
}  // namespace lockstep::testing
