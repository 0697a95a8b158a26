#include "lockstep/tensor/array.h"

#include <gtest/gtest.h>

#include "lockstep/ops/copy.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

TEST(Array, FromKeepsElementsInPlainOrder) {
  Array t = Array::from<std::int64_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(t.shape(), (Shape{2, 3}));
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_EQ(t.dtype(), DType::i64);
  EXPECT_EQ(t.layout(), Layout::plain);
  EXPECT_TRUE(t.device().is_host());
  EXPECT_EQ(t.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(t.describe(), "[2, 3] i64 on host");
  EXPECT_ERROR(Array::from<float>({1, 2}, {3}), "tensor: 2 values for shape [3]");
  EXPECT_ERROR(Array::host({2, -1}), "shape [2, -1] has a negative extent");
  EXPECT_EQ(Array::host({3}).to_vector<float>(), (Floats{0, 0, 0}));
}

TEST(Array, CopiesAreHandles) {
  Array a = Array::host({2}), b = a;
  *b.view().as<float>() = 5;
  EXPECT_EQ(a.to_vector<float>(), (Floats{5, 0}));
  EXPECT_FALSE(Array().defined());
  EXPECT_EQ(Array().describe(), "undefined");
}

TEST(Array, ReshapeInfersOneExtent) {
  Array t = Array::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(t.reshape({3, -1}).shape(), (Shape{3, 2}));
  EXPECT_EQ(t.reshape({-1}).shape(), Shape{6});
  EXPECT_EQ(t.reshape({1, 6, 1}).storage(), t.storage());
  EXPECT_EQ(Array::host({0, 3}).reshape({-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_ERROR(t.reshape({4, -1}), "reshape: the 6 elements of [2, 3] do not fit shape [4, -1]");
  EXPECT_ERROR(t.reshape({5}), "reshape: the 6 elements of [2, 3] do not fit shape [5]");
  EXPECT_ERROR(t.reshape({-1, -1}), "reshape: extent -1 in [-1, -1]");
  EXPECT_ERROR(Array().reshape({1}), "reshape: undefined tensor");
}

TEST(Array, NarrowIsAHandleToRows) {
  Array t = Array::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_EQ(t.narrow(1, 2).to_vector<float>(), (Floats{3, 4, 5, 6}));
  EXPECT_EQ(t.narrow(1, 2).narrow(1, 1).to_vector<float>(), (Floats{5, 6}));
  EXPECT_EQ(t.narrow(3, 0).numel(), 0);
  EXPECT_ERROR(t.narrow(2, 2), "narrow: rows [2, 4) of a tensor with 3 rows");
  EXPECT_ERROR(t.narrow(-1, 1), "narrow: rows [-1, 0)");
  EXPECT_ERROR(Array::host({}).narrow(0, 1), "narrow: the tensor has no axes");
}

TEST(Array, ReadsItsOwnTypeAndBf16AndF16AsF32) {
  Array t = Array::from<BFloat16>({BFloat16(1.5F), BFloat16(-2.0F)}, {2});
  EXPECT_EQ(t.to_vector<float>(), (Floats{1.5, -2}));
  Array half = Array::from<Float16>({Float16(1.5F), Float16(65504.0F)}, {2});
  EXPECT_EQ(half.to_vector<float>(), (Floats{1.5, 65504}));
  EXPECT_EQ(half.to_vector<Float16>()[0].bits, 0x3e00);
  EXPECT_EQ(half.str(), "tensor([1.5, 6.55e+04], f16, host)");
  EXPECT_ERROR(t.to_vector<double>(), "to_vector: the tensor holds bf16, requested as f64");
  EXPECT_ERROR(Array::host({1}, DType::f64).to_vector<float>(),
               "holds f64, requested as f32: name its type, as in item<double>()");
  EXPECT_ERROR(Array::host({1}).item<double>(), "holds f32, requested as f64: name its type, as in item<float>()");
  EXPECT_ERROR(Array::host({1}, DType::i64).item(), "name its type, as in item<std::int64_t>()");
  EXPECT_ERROR(Array::host({1}, DType::u8).item(), "name its type, as in item<std::uint8_t>()");
  EXPECT_EQ((Array::from<std::uint8_t>({7}, {1, 1}).item<std::uint8_t>()), 7);
  EXPECT_ERROR(Array::host({2}).item<float>(), "item: the tensor has 2 elements, expected 1");
  EXPECT_ERROR(Array().to_vector<float>(), "undefined tensor");
}

TEST(Array, ReadsEveryLayoutInPlainOrder) {
  Runtime runtime;
  Shape shape{2, 16, 3, 2};
  Array x = Random(1).floats(shape);
  for (Layout layout : {Layout::channels_last, Layout::blocked16}) {
    Array y = ops::to_layout(x.to(runtime.devices()[0]), layout);
    EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
    EXPECT_ERROR(y.reshape({192}), "expected plain");
  }
}

TEST(Array, PrintsItself) {
  EXPECT_EQ(Array::from<float>({1, 2.5, -3, 4}, {2, 2}).str(), "tensor([[1, 2.5],\n        [-3, 4]], f32, host)");
  EXPECT_EQ(Array::from<std::int64_t>({7}, {}).str(), "tensor(7, i64, host)");
  EXPECT_EQ(Array::from<std::uint8_t>({200, 1}, {2}).str(), "tensor([200, 1], u8, host)");
  EXPECT_EQ(Array::host({0}).str(), "tensor([], f32, host)");
  EXPECT_EQ(Array().str(), "tensor(undefined)");
  std::vector<std::int64_t> many(8);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(Array::from(many, {8}).str(), "tensor([0, 1, 2, 3, 4, 5, 6, 7], i64, host)");
  many.resize(1001, 9);
  EXPECT_EQ(Array::from(many, {1001}).str(), "tensor([0, 1, 2, ..., 9, 9, 9], i64, host)");
  Runtime runtime;
  EXPECT_EQ(Array::from<BFloat16>({BFloat16(0.5F)}, {1}).to(runtime.devices()[0]).str(), "tensor([0.5], bf16, cpu:0)");
}

TEST(Array, ShardsTravelWithHandles) {
  Array t = Array::host({4, 2});
  EXPECT_EQ(t.shard(), -1);
  EXPECT_EQ(t.with_shard(3).reshape({8}).narrow(0, 2).shard(), 3);
}

}  // namespace
}  // namespace lockstep::testing
