// Which convolutions the CPU computes with sixteen pixels of a row in a vector. The results are tested in conv_test.cc.
#include <gtest/gtest.h>

#include "lockstep/backend/cpu/conv_thin_pass.h"

namespace lockstep::cpu {
namespace {

ConvGroup group(const Shape& x, std::int64_t outputs, std::int64_t kernel, Conv2dOptions options = {}) {
  const auto extent = [&](int axis) {
    return (x[2 + axis] + 2 * options.padding[axis] - options.dilation[axis] * (kernel - 1) - 1) /
               options.stride[axis] +
           1;
  };
  return {options, View{.shape = x}, View{.shape = {outputs, x[1] / options.groups, kernel, kernel}},
          View{.shape = {x[0], outputs, extent(0), extent(1)}}};
}

TEST(ThinPass, IsForFewChannelsOfWideRows) {
  EXPECT_TRUE(ThinPass::pays(group({256, 1, 28, 28}, 6, 5), ConvPass::forward));         // LeNet's first layer
  EXPECT_FALSE(ThinPass::pays(group({256, 6, 14, 14}, 16, 5), ConvPass::forward));       // the second one
  EXPECT_TRUE(ThinPass::pays(group({256, 6, 14, 14}, 16, 5), ConvPass::backward_data));  // has 6 channels
  EXPECT_TRUE(ThinPass::pays(group({8, 32, 16, 16}, 32, 3, {.padding = {1, 1}, .groups = 32}), ConvPass::forward));
  EXPECT_FALSE(ThinPass::pays(group({8, 1, 4, 4}, 6, 3), ConvPass::forward));  // 2 of 16 pixels
  EXPECT_FALSE(ThinPass::pays(group({8, 1, 28, 28}, 6, 5, {.stride = {2, 2}}), ConvPass::forward));
}

TEST(ThinWeightPass, IsForFewOutputsOfManyWeights) {
  EXPECT_TRUE(ThinWeightPass::pays(group({256, 1, 28, 28}, 6, 5)));
  EXPECT_FALSE(ThinWeightPass::pays(group({256, 6, 14, 14}, 16, 5)));
  EXPECT_FALSE(ThinWeightPass::pays(group({256, 1, 28, 28}, 6, 1)));
  EXPECT_FALSE(ThinWeightPass::pays(group({256, 1, 28, 28}, 6, 5, {.dilation = {1, 2}})));
}

}  // namespace
}  // namespace lockstep::cpu
