// Members of Tensor are differentiable: their results have a history.
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/autograd/no_grad.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

class TensorFunctions : public ::testing::Test {
 protected:
  Tensor constant(const Numbers& v, int device = 0) {
    return make_tensor(v, {static_cast<std::int64_t>(v.size())}, devices_[static_cast<std::size_t>(device)]);
  }
  Tensor leaf(const Numbers& v, int device = 0) { return constant(v, device).set_requires_grad(true); }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
  const std::vector<Device>& devices_ = runtime_.devices();
};

TEST_F(TensorFunctions, TensorsShapesAndDevicesPrint) {
  std::ostringstream text;
  const Tensor x = constant({1, 2});
  text << x << ", " << x.shape() << ", " << x.device() << ", " << kHost;
  EXPECT_EQ(text.str(), fmt::format("tensor([1, 2], f32, {0}), [2], {0}, host", devices_[0].name()));
}

TEST_F(TensorFunctions, ReshapeKeepsTheHistory) {
  Tensor x = leaf({1, 2, 3, 4, 5, 6});
  Tensor y = x.reshape({2, -1});
  EXPECT_EQ(y->storage(), x->storage());
  sum(square(y)).backward();
  EXPECT_EQ(x.grad().shape(), Shape{6});
  EXPECT_EQ(values(x.grad()), (Numbers{2, 4, 6, 8, 10, 12}));
}

TEST_F(TensorFunctions, NarrowSendsGradientsToItsRows) {
  Tensor x = leaf({1, 2, 3, 4, 5, 6});
  sum(square(x.reshape({3, 2}).narrow(0, 1, 2))).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{0, 0, 6, 8, 10, 12}));
  x.zero_grad();
  // Overlapping parts add up; an empty one has no influence.
  const Tensor rows = x.reshape({3, 2});
  (sum(rows.narrow(0, 0, 2)) + sum(rows.narrow(0, 1, 2)) * 10 + sum(rows.narrow(0, 3, 0))).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{1, 1, 11, 11, 10, 10}));
}

TEST_F(TensorFunctions, NarrowOfImagesKeepsTheirLayout) {
  for (const Layout layout : {Layout::channels_last, Layout::blocked16}) {
    Tensor x = as_leaf(Tensor(Random(1).floats({3, 16, 2, 2})).to(devices_[0]));
    sum(square(flatten(x.to(layout).narrow(0, 1, 1), 1))).backward();
    Numbers expected = values(x);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = i >= 64 && i < 128 ? 2 * expected[i] : 0;
    EXPECT_EQ(values(x.grad()), expected);
  }
}

TEST_F(TensorFunctions, CopiesBetweenDevicesKeepTheHistory) {
  Tensor x = leaf({1, 2}, 0);
  Tensor y = x.to(devices_[1]);
  EXPECT_EQ(y.device(), devices_[1]);
  EXPECT_EQ(y.to(devices_[1])->storage(), y->storage());
  sum(square(y)).backward();
  EXPECT_EQ(x.grad().device(), devices_[0]);
  EXPECT_EQ(values(x.grad()), (Numbers{2, 4}));
}

// A leaf in host memory has its gradient there, also where several devices and calls add to it.
TEST_F(TensorFunctions, CopiesOfHostMemoryKeepTheHistory) {
  Tensor x = Tensor::from<float>({1, 2, 3}, {3}).set_requires_grad(true);
  for (int call = 0; call < 2; ++call) {
    (sum(square(x.pin(devices_[0]).to(devices_[0]))) + sum(x.narrow(0, 1, 2).to(devices_[1])).to(devices_[0]))
        .backward();
  }
  EXPECT_TRUE(x.grad().device().is_host());
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{4, 10, 14}));
}

TEST_F(TensorFunctions, ALossMayBeCopiedToTheHost) {
  Tensor x = leaf({1, 2});
  sum(square(x)).to(Device()).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{2, 4}));
}

TEST_F(TensorFunctions, WhatHasNoHistoryRecordsNone) {
  Tensor x = constant({1, 2}), leaf = this->leaf({1, 2});
  for (const Tensor& y : {x.reshape({2, 1}), x.narrow(0, 0, 1), x.to(devices_[1]), x.to(Device())}) {
    EXPECT_FALSE(y.requires_grad());
  }
  NoGradGuard no_grad;
  for (const Tensor& y :
       {leaf.reshape({2, 1}), leaf.narrow(0, 0, 1), leaf.to(devices_[1]), leaf.detach().reshape({2})}) {
    EXPECT_FALSE(y.requires_grad());
  }
}

TEST_F(TensorFunctions, ACopyInPlaceReachesAllReplicas) {
  const Tensor everywhere = replicated_tensor({constant({1, 2}, 0)->array(), constant({1, 2}, 1)->array()});
  const std::vector<Slot> slots{{0, devices_[0]}, {1, devices_[1]}};
  const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{1, 1}, slots);
  const Tensor on_demand = replicated_tensor({constant({1, 2}, 0)->array()}, at);
  EXPECT_EQ(values(on_demand->on(devices_[1])), (Numbers{1, 2}));
  for (const Tensor& t : {everywhere, on_demand}) {
    t.copy_from(Tensor::from<float>({3, 4}, {2}));
    for (Device device : devices_) EXPECT_EQ(values(t->on(device)), (Numbers{3, 4}));
    t.copy_from(constant({5, 6}, 1));
    for (Device device : devices_) EXPECT_EQ(values(t->on(device)), (Numbers{5, 6}));
  }
}

TEST_F(TensorFunctions, ACopyInPlaceThatWouldLoseAHistoryIsAnError) {
  Tensor x = leaf({1, 2}), y = constant({0, 0}), z = x * 2;
  EXPECT_ERROR(y.copy_from(x), "copy_from: " + x.describe() + " needs a gradient, but a copy in place records none");
  EXPECT_ERROR(z.copy_from(y), "copy_from: " + z.describe() + " has a history, and its gradient would be that of");
  y.copy_from(x.detach());
  EXPECT_EQ(values(y), (Numbers{1, 2}));
  NoGradGuard no_grad;
  z.copy_from(x);
  EXPECT_EQ(values(z), (Numbers{1, 2}));
}

}  // namespace
}  // namespace lockstep::testing
