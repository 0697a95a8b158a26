// One loss of two batches with different sizes, numbers of shards, and devices. Some leave a device without samples.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "lockstep/autograd/backward.h"
#include "lockstep/nn/linear.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep {
namespace {

// first, first + 1, ...
Tensor counted(std::int64_t samples, float first) {
  std::vector<float> all(static_cast<std::size_t>(samples));
  std::iota(all.begin(), all.end(), first);
  return Tensor::from(all, {samples, 1});
}

// y = x w, with w = 1, on D devices.
struct OneWeight {
  explicit OneWeight(int devices, bool bias = false)
      : runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1}),
        net({.in_features = 1, .out_features = 1, .bias = bias}) {
    net.initialize(Constant{1}, runtime.devices());
  }
  Tensor cut(const Tensor& x, int shards) { return split_and_load(x, runtime.devices(), {.shards = shards}); }
  // One sample, 2, which leaves the second device idle; and 1 to 4.
  Tensor small() { return net(cut(counted(1, 2), 2)); }
  Tensor large() { return net(cut(counted(4, 1), 2)); }
  double gradient() { return testing::values(net.weight.gradient()).at(0); }

  Runtime runtime;
  Linear net;
};

TEST(TwoBatches, CountTheSameWhereOneLeavesADeviceIdle) {
  struct Loss {
    std::string name;
    std::function<Tensor(const Tensor& small, const Tensor& large)> of;
    double expected;
  };
  const std::vector<Loss> losses{
      {"small first", [](const Tensor& s, const Tensor& l) { return mean(s) + mean(l); }, 4.5},
      {"large first", [](const Tensor& s, const Tensor& l) { return mean(l) + mean(s); }, 4.5},
      {"root of a mean", [](const Tensor& s, const Tensor& l) { return mean(l) + sqrt(mean(square(s))); }, 4.5},
      {"log of a mean", [](const Tensor& s, const Tensor& l) { return log(mean(exp(s))) + mean(l); }, 4.5},
      // d/dw of 4 w^2 2.5 w
      {"product", [](const Tensor& s, const Tensor& l) { return mean(l) * mean(square(s)); }, 30},
      {"product, small first", [](const Tensor& s, const Tensor& l) { return mean(square(s)) * mean(l); }, 30},
  };
  for (const auto& [name, of, expected] : losses) {
    for (int devices : {1, 2}) {
      for (bool small_first : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {} devices, small made first: {}", name, devices, small_first));
        OneWeight w(devices);
        Tensor small, large;
        if (small_first) small = w.small();
        large = w.large();
        if (!small_first) small = w.small();
        of(small, large).backward();
        EXPECT_NEAR(w.gradient(), expected, 1e-5);
      }
    }
  }
}

TEST(TwoBatches, MayHaveOtherNumbersOfShards) {
  for (int devices : {1, 2}) {
    for (const auto& [first, second] : {std::pair{4, 2}, {2, 4}, {1, 64}}) {
      OneWeight w(devices);
      (mean(w.net(w.cut(counted(4, 1), first))) + mean(w.net(w.cut(counted(64, 1), second)))).backward();
      EXPECT_EQ(w.gradient(), 2.5 + 32.5) << first << " " << second;
    }
  }
}

// A weight on both; each batch on one.
TEST(TwoBatches, MayBeOnDevicesOfTheirOwn) {
  OneWeight w(2);
  const auto on = [&](std::size_t device, float x) {
    return sum(split_and_load(counted(1, x), std::span(w.runtime.devices()).subspan(device, 1))) *
           sum(w.net.weight.tensor());
  };
  backward(std::array{on(0, 2), on(1, 5)}, std::array{Tensor(), Tensor()});
  EXPECT_EQ(w.gradient(), 7);
}

// As many shards on as many devices, or not: a result belongs to its batch.
TEST(TwoBatches, AResultOfOneBesideSamplesOfTheOtherIsRefused) {
  for (int devices : {1, 2}) {
    for (const auto& [first, second] : {std::pair{2, 2}, {1, 64}, {64, 1}}) {
      OneWeight w(devices);
      const Tensor samples = w.cut(counted(64, 1), second), other = w.cut(counted(1, 2), first);
      EXPECT_ERROR(samples * mean(w.net(other)).reshape({1, 1}), "was computed from another batch than [64, 1] f32 on");
      // Whole it is a constant.
      const Tensor constant = mean(w.net(other)).detach().to(Device()).to(w.runtime.devices()[0]).reshape({1, 1});
      EXPECT_EQ((sum(samples * constant)).item<float>(), 2 * 65 * 32);
    }
  }
}

// A whole leaf has a gradient from every shard of both, also where only one of them has such a shard, or samples there.
TEST(TwoBatches, MayShareAWholeLeaf) {
  for (int devices : {1, 2}) {
    for (const auto& [first, second] : {std::pair{4, 8}, {8, 4}, {1, 64}, {2, 2}}) {
      for (const std::int64_t samples : {1, 4}) {
        SCOPED_TRACE(fmt::format("{} devices, {} and {} shards, {} samples", devices, first, second, samples));
        OneWeight w(devices);
        Tensor leaf = Tensor(Array::from(std::vector<float>{1}, {1})).to(w.runtime.devices()[0]);
        leaf.set_requires_grad(true);
        const auto loss = [&](const Tensor& x) {
          return sum(per_shard([&](const Tensor& part) { return part * leaf; }, x));
        };
        (loss(w.cut(counted(samples, 1), first)) + loss(w.cut(counted(64, 1), second))).backward();
        EXPECT_EQ(testing::values(leaf.grad()).at(0), (samples == 1 ? 1 : 10) + 32 * 65);
      }
    }
  }
}

// A parameter used by samples, by a whole tensor and by itself.
TEST(TwoBatches, OneMayBeWhole) {
  for (int devices : {1, 2}) {
    OneWeight w(devices);
    const Tensor whole = counted(2, 10).to(w.runtime.devices().back());
    (mean(w.large()) + mean(w.net(whole)) * 2 + sum(square(w.net.weight.tensor()))).backward();
    EXPECT_EQ(w.gradient(), 2.5 + 21 + 2);
  }
}

}  // namespace
}  // namespace lockstep
