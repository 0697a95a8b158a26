
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/ops/copy.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using Sizes = std::vector<std::int64_t>;

std::vector<float> counting(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(SplitSizes, AreChunksOfTheRoundedUpShare) {
  EXPECT_EQ(split_sizes(30, 1), Sizes({30}));
  EXPECT_EQ(split_sizes(30, 2), Sizes({15, 15}));
  EXPECT_EQ(split_sizes(30, 3), Sizes({10, 10, 10}));
  EXPECT_EQ(split_sizes(30, 8), Sizes({4, 4, 4, 4, 4, 4, 4, 2}));
  EXPECT_EQ(split_sizes(10, 1), Sizes({10}));
  EXPECT_EQ(split_sizes(10, 2), Sizes({5, 5}));
  EXPECT_EQ(split_sizes(10, 3), Sizes({4, 4, 2}));
  EXPECT_EQ(split_sizes(10, 8), Sizes({2, 2, 2, 2, 2}));
}

TEST(DefaultShards, LeaveAtLeast16SamplesEach) {
  for (const auto& [batch, shards] : std::vector<std::pair<std::int64_t, int>>{
           {1, 1}, {31, 1}, {32, 2}, {63, 2}, {64, 4}, {100, 4}, {127, 4}, {128, 8}, {256, 8}, {1 << 20, 8}}) {
    EXPECT_EQ(default_shards(batch), shards) << batch;
  }
}

TEST(SplitSizes, HoldEverySampleOnceAndNoEmptyChunk) {
  for (std::int64_t n = 0; n <= 40; ++n) {
    for (int shards = 1; shards <= 12; ++shards) {
      const Sizes sizes = split_sizes(n, shards);
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), n);
      EXPECT_LE(sizes.size(), static_cast<std::size_t>(shards));
      for (const std::int64_t size : sizes) EXPECT_GE(size, 1);
    }
  }
  EXPECT_ERROR(split_sizes(-1, 2), "-1 samples into 2 shards");
  EXPECT_ERROR(split_sizes(4, 0), "4 samples into 0 shards");
}

TEST(SplitAndLoad, PutsEachShardWithItsRowsOnItsDevice) {
  Runtime runtime({.cpu_devices = 3});
  const Tensor x = Tensor::from(counting(20), {10, 2});
  const Tensor batch = split_and_load(x, runtime.devices());
  ASSERT_EQ(batch->parts.size(), 3u);
  EXPECT_EQ(batch->at->rows(), Sizes({4, 4, 2}));
  EXPECT_EQ(batch.shape(), (Shape{10, 2}));
  float next = 0;
  for (std::size_t s = 0; s < batch->parts.size(); ++s) {
    EXPECT_EQ(batch->parts[s].device(), runtime.devices()[s]);
    EXPECT_EQ(batch->parts[s].shard(), static_cast<int>(s));
    EXPECT_EQ(batch->parts[s].shape(), (Shape{batch->at->rows()[s], 2}));
    for (const float value : ops::host_readable(batch->parts[s]).to_vector<float>()) EXPECT_EQ(value, next++);
  }
  EXPECT_EQ(next, 20);
}

TEST(SplitAndLoad, CutsTheSameShardsForAnyNumberOfDevices) {
  Runtime runtime({.cpu_devices = 3});
  const std::vector<Device> all = runtime.devices();
  const Tensor x = Tensor::from(counting(30), {30});
  for (std::size_t d = 1; d <= 3; ++d) {
    const Tensor batch = split_and_load(x, std::span(all).first(d), {.shards = 8});
    ASSERT_EQ(batch->at->rows(), Sizes({4, 4, 4, 4, 4, 4, 4, 2}));
    for (std::size_t s = 0; s < 8; ++s) {
      EXPECT_EQ(batch->parts[s].device(), all[s * d / 8]);
      EXPECT_EQ(ops::host_readable(batch->parts[s]).to_vector<float>().front(), static_cast<float>(4 * s));
    }
  }
}

TEST(SplitAndLoad, TakesFromDevicesToo) {
  Runtime runtime({.cpu_devices = 2});
  const Tensor x = Tensor::from(counting(6), {6}).to(runtime.devices()[1]);
  const Tensor batch = split_and_load(x, runtime.devices());
  EXPECT_EQ(batch->parts[0].device(), runtime.devices()[0]);
  EXPECT_EQ(ops::host_readable(batch->parts[0]).to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(ops::host_readable(batch->parts[1]).to_vector<float>(), (std::vector<float>{3, 4, 5}));
}

TEST(SplitAndLoad, GivesDevicesShardsInProportionToTheirWeights) {
  Runtime runtime({.cpu_devices = 3});
  const std::vector<Device>& devices = runtime.devices();
  const Tensor x = Tensor::from(counting(30), {30});
  const Tensor batch = split_and_load(x, devices, {.shards = 8, .balance = {.weights = {1, 5, 2}}});
  EXPECT_EQ(batch->at->rows(), Sizes({4, 4, 4, 4, 4, 4, 4, 2}));
  for (std::size_t s = 0; s < 8; ++s) {
    EXPECT_EQ(batch->parts[s].device(), devices[s < 1 ? 0 : s < 6 ? 1 : 2]) << s;
    EXPECT_EQ(ops::host_readable(batch->parts[s]).to_vector<float>().front(), static_cast<float>(4 * s));
  }
  EXPECT_ERROR(split_and_load(x, devices, {.shards = 8, .balance = {.weights = {2, 1}}}),
               "balance 2,1: 2 weights for 3 devices, expected one for each");
  EXPECT_ERROR(split_and_load(x, devices, {.shards = 8, .balance = {.weights = {2, 0, 1}}}),
               "weight 0, expected a number above 0");
  EXPECT_ERROR(split_and_load(x, devices, {.shards = 2, .balance = {.weights = {2, 1, 1}}}),
               "2 shards for 3 devices, expected at least one for each");
}

// Layers before it are trained, too.
TEST(SplitAndLoad, SendsGradientsBackToWhatIsSplit) {
  Runtime runtime({.cpu_devices = 2});
  for (const Device place : {runtime.devices()[0], Device()}) {
    Tensor x = Tensor::from(counting(5), {5}).to(place).set_requires_grad(true);
    const Tensor batch = split_and_load(x, runtime.devices(), {.shards = 3});
    mse_loss(batch, split_and_load(Tensor::host({5}), runtime.devices(), {.shards = 3})).backward();
    EXPECT_EQ(x.grad().device(), place);
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(x.grad().to_vector<float>()[i], 2.0 * static_cast<double>(i) / 5, 1e-6);
  }
}

TEST(SplitAndLoad, RefusesWhatCannotBeSplit) {
  Runtime runtime;
  EXPECT_ERROR(split_and_load(Tensor::host({4}), {}), "no devices");
  EXPECT_ERROR(split_and_load(Tensor::host({}), runtime.devices()), "at least one sample, on axis 0");
  EXPECT_ERROR(split_and_load(Tensor(), runtime.devices()), "split_and_load");
  EXPECT_ERROR(split_and_load(Tensor::host({4}), runtime.devices(), {.shards = -1}), "-1 shards");
  const Tensor cut = split_and_load(Tensor::host({4}), runtime.devices());
  EXPECT_ERROR(split_and_load(cut, runtime.devices()), " is already cut or replicated, expected a whole tensor");
}

TEST(Gather, IsTheInverseOfSplitting) {
  Runtime runtime({.cpu_devices = 3});
  const Tensor x = Tensor::from(counting(20), {10, 2});
  const Tensor batch = split_and_load(x, runtime.devices(), {.shards = 7});
  for (const Device device : {Device(), runtime.devices()[0], runtime.devices()[2]}) {
    const Tensor all = gather(batch, device);
    EXPECT_EQ(all.device(), device);
    EXPECT_EQ(all.shape(), x.shape());
    EXPECT_EQ(all.to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_ERROR(gather(Tensor{}, Device()), "gather: undefined tensor");
}

TEST(Gather, SendsGradientsBackToTheDevicesOfTheShards) {
  Runtime runtime({.cpu_devices = 2});
  const std::vector<Device>& devices = runtime.devices();
  for (const Device target : {devices[0], devices[1], Device()}) {
    Tensor x = split_and_load(Tensor::from(counting(5), {5}), devices);
    x.set_requires_grad(true);
    const Device place = target.is_host() ? devices[1] : target;
    const Tensor weights = Tensor::from(std::vector<float>{1, 2, 3, 4, 5}, {5}).to(place);
    sum(gather(x, target).to(place) * weights).backward();
    EXPECT_EQ(x.grad()->parts[0].device(), devices[0]);
    EXPECT_EQ(x.grad()->parts[1].device(), devices[1]);
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5}));
  }
}

}  // namespace
}  // namespace lockstep
