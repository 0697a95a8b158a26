#include "lockstep/ops/conv.h"

#include <gtest/gtest.h>

#include "lockstep/runtime/runtime.h"
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

}  // namespace
}  // namespace lockstep::testing
