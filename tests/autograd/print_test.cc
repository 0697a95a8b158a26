// What a tensor prints.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep::testing {
namespace {

TEST(Print, ElementsTypeAndDevice) {
  EXPECT_EQ(Tensor::from<float>({1, 2.5, -3, 4}, {2, 2}).str(), "tensor([[1, 2.5],\n        [-3, 4]], f32, host)");
  EXPECT_EQ(Tensor::from<std::int64_t>({7}, {}).str(), "tensor(7, i64, host)");
  EXPECT_EQ(Tensor::from<std::uint8_t>({200, 1}, {2}).str(), "tensor([200, 1], u8, host)");
  EXPECT_EQ(Tensor::from<Float16>({Float16(1.5F), Float16(65504.0F)}, {2}).str(), "tensor([1.5, 6.55e+04], f16, host)");
  EXPECT_EQ(Tensor::host({0}).str(), "tensor([], f32, host)");
  EXPECT_EQ(Tensor().str(), "tensor(undefined)");
  Runtime runtime;
  EXPECT_EQ(Tensor::from<BFloat16>({BFloat16(0.5F)}, {1}, {.device = runtime.devices()[0]}).str(),
            "tensor([0.5], bf16, cpu:0)");
}

TEST(Print, ManyElementsAreShortened) {
  std::vector<std::int64_t> many(8);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_EQ(Tensor::from(many, {8}).str(), "tensor([0, 1, 2, 3, 4, 5, 6, 7], i64, host)");
  many.resize(1001, 9);
  EXPECT_EQ(Tensor::from(many, {1001}).str(), "tensor([0, 1, 2, ..., 9, 9, 9], i64, host)");
}

// In the order of their indices, whatever their order in memory.
TEST(Print, EveryLayoutInPlainOrder) {
  Runtime runtime;
  std::vector<float> values(16 * 2);
  std::iota(values.begin(), values.end(), 0.0F);
  const Tensor x = Tensor::from(values, {1, 16, 1, 2}, {.device = runtime.devices()[0]});
  for (Layout layout : {Layout::channels_last, Layout::blocked16}) {
    EXPECT_EQ(x.to(layout).layout(), layout);
    EXPECT_EQ(x.to(layout).str(), x.str());
  }
}

}  // namespace
}  // namespace lockstep::testing
