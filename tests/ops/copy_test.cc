// What moves elements: copies between devices, types and layouts.
#include "lockstep/ops/copy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

class CopyTest : public ::testing::TestWithParam<bool> {
 protected:
  Device device(std::size_t i) { return runtime_.devices()[i]; }
  // 0, 1, 2, ... in host memory.
  static Tensor counting(const Shape& shape) {
    Floats v(static_cast<std::size_t>(shape.numel()));
    std::iota(v.begin(), v.end(), 0.0F);
    return Tensor::from(v, shape);
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1, .serial = GetParam()}};
};

INSTANTIATE_TEST_SUITE_P(Engines, CopyTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "serial" : "threaded"; });

TEST_P(CopyTest, RoundTripThroughTwoDevices) {
  Tensor x = counting({3, 4}), a = x.to(device(0)), b = a.to(device(1)), back = b.to(Device());
  EXPECT_EQ(a.device(), device(0));
  EXPECT_EQ(b.device(), device(1));
  EXPECT_TRUE(back.device().is_host());
  for (const Tensor& t : {a, b, back}) {
    EXPECT_EQ(t.shape(), x.shape());
    EXPECT_EQ(t.to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_EQ(a.to(device(0)).storage(), a.storage());
  EXPECT_EQ(x.to(Device()).storage(), x.storage());
}

TEST_P(CopyTest, ShardsStayWithTheirTensors) {
  Tensor x = counting({2}).with_shard(3);
  EXPECT_EQ(x.to(device(0)).shard(), 3);
  EXPECT_EQ(x.to(device(0)).to(device(1)).to(Device()).shard(), 3);
}

// After a blocking copy the caller may do to host memory as it likes.
TEST_P(CopyTest, ABlockingCopyIsThroughWithItsSource) {
  for (int i = 0; i < 20; ++i) {
    Tensor x = counting({1000});
    Tensor y = x.to(device(0));
    std::fill_n(x.view().as<float>(), 1000, -1.0F);
    ASSERT_EQ(y.narrow(7, 1).item<float>(), 7);
  }
}

// A non-blocking copy holds host memory that its owner lets go, and is waited for by who reads its result.
TEST_P(CopyTest, NonBlockingCopiesHoldTheirMemory) {
  constexpr std::int64_t kMany = 1 << 16;
  std::vector<Tensor> copies;
  for (int i = 0; i < 20; ++i) {
    Tensor y = counting({kMany}).to(device(0), {.non_blocking = true});
    copies.push_back(ops::affine(y, 2, 0).to(Device(), {.non_blocking = true}));
  }
  for (const Tensor& t : copies) {
    Floats v = t.to_vector<float>();
    EXPECT_EQ(v[5], 10);
    EXPECT_EQ(v[kMany - 1], 2.0F * (kMany - 1));
  }
}

TEST_P(CopyTest, AFailureArrivesWithTheCopy) {
  Tensor rows = Tensor::from<std::int64_t>({0, 9}, {2}).to(device(0));
  Tensor broken = ops::gather_rows(counting({3, 2}).to(device(0)), rows);
  Tensor far = broken.to(device(1), {.non_blocking = true});
  Tensor here = far.to(Device(), {.non_blocking = true});
  EXPECT_THROW(here.wait(), TaskError);
  EXPECT_ERROR(far.to(Device()), "gather");
}

TEST_P(CopyTest, LayoutsAndTypesChangeOnTheWay) {
  Shape shape{2, 16, 3, 2};
  Tensor x = counting(shape).to(device(0));
  for (Layout layout : {Layout::channels_last, Layout::blocked16}) {
    Tensor y = ops::to_layout(x, layout);
    EXPECT_EQ(y.layout(), layout);
    EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
    EXPECT_EQ(y.to(device(1)).layout(), layout);
    EXPECT_EQ(y.to(Device()).layout(), Layout::plain);
    EXPECT_EQ(y.to(Device()).to_vector<float>(), x.to_vector<float>());
    // 0 to 191 are bf16 numbers.
    Tensor half = ops::convert(y, DType::bf16, Layout::plain);
    EXPECT_EQ(half.to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_ERROR(ops::to_layout(counting({2, 3, 1, 2}).to(device(0)), Layout::blocked16),
               "[2, 3, 1, 2] cannot be blocked16");
}

TEST_P(CopyTest, ALayoutThatOrdersEverythingAlikeIsNoCopy) {
  Tensor x = counting({2, 32, 1, 1}).to(device(0));
  Tensor y = ops::to_layout(x, Layout::blocked16);
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_EQ(y.layout(), Layout::blocked16);
  EXPECT_EQ(ops::convert(x, DType::f32, Layout::plain).storage(), x.storage());
}

TEST_P(CopyTest, PartsOfAStorageMayBeCopied) {
  Tensor x = counting({6}).to(device(0)), y = Tensor::host({6}).to(device(1));
  ops::copy_(x.narrow(1, 2), y.narrow(3, 2));
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 0, 0, 1, 2, 0}));
}

TEST_P(CopyTest, Concatenate) {
  Tensor parts[] = {counting({2, 3}).to(device(0)), counting({0, 3}).to(device(0)),
                    counting({1, 3}).to(device(1))};
  Floats expected{0, 1, 2, 3, 4, 5, 0, 1, 2};
  for (Device where : {device(0), device(1), Device()}) {
    Tensor all = ops::concatenate(parts, where);
    EXPECT_EQ(all.device(), where);
    EXPECT_EQ(all.shape(), (Shape{3, 3}));
    EXPECT_EQ(all.to_vector<float>(), expected);
  }
  parts[1] = counting({2, 4}).to(device(0));
  EXPECT_ERROR(ops::concatenate(parts, device(0)),
               "concatenate: [2, 4] f32 on cpu:0 beside [2, 3] f32 on cpu:0");
  EXPECT_ERROR(ops::concatenate({}, device(0)), "concatenate: no tensors");
}

TEST_P(CopyTest, PermuteAndGather) {
  Tensor x = counting({2, 3}).to(device(0));
  int axes[] = {1, 0}, twice[] = {1, 1}, three[] = {0, 1, 2};
  EXPECT_EQ(ops::permute(x, axes).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_ERROR(ops::permute(x, twice), "permute: axis 1 is repeated or out of range");
  EXPECT_ERROR(ops::permute(x, three), "permute: 3 axes for shape [2, 3]");
  Tensor rows = Tensor::from<std::int64_t>({1, 0, 1}, {3}).to(device(0));
  EXPECT_EQ(ops::gather_rows(x, rows).to_vector<float>(), (Floats{3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_ERROR(ops::gather_rows(x, x), "gather_rows: rows is [2, 3], expected 1 axes");
}

TEST_P(CopyTest, CopiesThatMakeNoSenseAreErrors) {
  Tensor x = counting({2});
  EXPECT_ERROR(ops::copy_(x, Tensor::host({3})),
               "copy: from [2] f32 on host to [3] f32 on host, expected the same");
  EXPECT_ERROR(ops::copy_(x, Tensor::host({2})), "both tensors are in host memory");
  EXPECT_ERROR(ops::copy_(x, Tensor()), "undefined tensor");
  EXPECT_ERROR(Tensor().to(device(0)), "to: undefined tensor");
}

}  // namespace
}  // namespace lockstep::testing
