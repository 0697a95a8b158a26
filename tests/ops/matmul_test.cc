#include "lockstep/ops/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "lockstep/engine/engine.h"
#include "lockstep/engine/push_observer.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/prepared.h"
#include "lockstep/runtime/runtime.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

const std::vector<ops::PreparedWeights::Result>& results(const Array& w) {
  return ops::PreparedWeights::of(*w.storage()).results;
}

std::size_t prepared(const Array& w) {
  return static_cast<std::size_t>(
      std::ranges::count_if(results(w), [](const auto& result) { return result.storage != nullptr; }));
}

// The first product after an update packs the weights itself.
TEST(Matmul, ProductsOfOneUpdateSharePreparedWeights) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = ops::to_device(random.floats({8, 200}), device), w = ops::to_device(random.floats({96, 200}), device);
  const auto product = [&] { return values(ops::matmul(x, w, {}, {.options = {.transpose_b = true}})); };
  for (int update = 0; update < 3; ++update) {
    const std::vector<double> first = product();
    EXPECT_EQ(prepared(w), update == 0 ? 0U : 1U);
    EXPECT_EQ(product(), first);
    EXPECT_EQ(product(), first);
    EXPECT_EQ(prepared(w), 1U);
    ops::copy_(random.floats({96, 200}), w);
    EXPECT_NE(product(), first) << "the weights have changed";
  }
}

TEST(Matmul, EachSideOfAMatrixIsPreparedByItself) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = ops::to_device(random.floats({8, 96}), device), w = ops::to_device(random.floats({96, 96}), device);
  const auto product = [&](bool transposed) {
    return values(ops::matmul(x, w, {}, {.options = {.transpose_b = transposed}}));
  };
  const std::vector<double> plain = product(false), transposed = product(true);
  EXPECT_NE(plain, transposed);
  EXPECT_EQ(product(false), plain);
  EXPECT_EQ(product(true), transposed);
  EXPECT_EQ(prepared(w), 2U);
}

// As in a program that multiplies by one slice of a table after the other.
TEST(Matmul, FewSlicesOfAWeightArePreparedAtATime) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = ops::to_device(random.floats({8, 64}), device), w = ops::to_device(random.floats({1000, 64}), device);
  for (int i = 0; i < 100; ++i) {
    const Array slice = ops::narrow(w, i, 96);
    const auto product = [&] { return values(ops::matmul(x, slice, {}, {.options = {.transpose_b = true}})); };
    const std::vector<double> first = product();
    EXPECT_EQ(product(), first);
    EXPECT_EQ(product(), first);
    EXPECT_LE(prepared(w), 8U);
  }
  EXPECT_EQ(results(w).size(), 8U);
}

// A slice that finds no place packs itself at each product. If it took the place of another one, every slice would.
TEST(Matmul, SlicesUsedInTurnDoNotDisplaceEachOther) {
  struct CountPackings : PushObserver {
    void pushed(const Task& task) noexcept override { packings += task.name == "prepare weights"; }
    void succeeded(const Resource&, const Resource&) noexcept override {}
    int packings = 0;
  };
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = ops::to_device(random.floats({8, 64}), device), w = ops::to_device(random.floats({1000, 64}), device);
  const auto observer = std::make_shared<CountPackings>();
  runtime.engine().set_push_observer(observer);
  for (int update = 1; update <= 3; ++update) {
    for (int turn = 0; turn < 5; ++turn) {
      for (int i = 0; i < 9; ++i) ops::matmul(x, ops::narrow(w, i, 96), {}, {.options = {.transpose_b = true}});
    }
    EXPECT_EQ(observer->packings, update * 8);
    ops::copy_(random.floats({1000, 64}), w);
  }
  runtime.engine().set_push_observer(nullptr);
}

// What an update has made useless goes first.
TEST(Matmul, PreparedSlicesOfEarlierUpdatesMakeRoom) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = ops::to_device(random.floats({8, 64}), device), w = ops::to_device(random.floats({1000, 64}), device);
  const auto multiply = [&](int i) { ops::matmul(x, ops::narrow(w, i, 96), {}, {.options = {.transpose_b = true}}); };
  for (int i = 0; i < 8; ++i) multiply(i), multiply(i);
  ops::copy_(random.floats({1000, 64}), w);
  multiply(8);
  EXPECT_EQ(results(w).size(), 1U);
}

// Threads compute with one weight while another one updates it. Each product is of the weights before an update or
// after it, and in the end of the last ones.
TEST(Matmul, ProductsBesideAnUpdateNeverKeepOldWeights) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = ops::to_device(random.floats({8, 64}), device), w = ops::to_device(random.floats({96, 64}), device);
  const auto product = [&](const Array& by) {
    return values(ops::matmul(x, by, {}, {.options = {.transpose_b = true}}));
  };
  std::vector<Array> weights;
  for (int i = 0; i < 20; ++i) weights.push_back(random.floats({96, 64}));
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!over) product(w);
    });
  }
  for (const Array& weight : weights) {
    ops::copy_(weight, w);
    const std::vector<double> expected = product(ops::to_device(weight, device));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(product(w), expected);
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
}

// A mask or a table in host memory, say.
TEST(Copy, ThreadsMayCopyOneHostTensor) {
  Runtime runtime({.cpu_devices = 1});
  Random random(1);
  const Array host = random.floats({16});
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> found(4);
  for (auto& copy : found)
    threads.emplace_back([&] { copy = ops::to_device(host, runtime.devices()[0]).to_vector<float>(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& copy : found) EXPECT_EQ(copy, host.to_vector<float>());
}

// Packing is a small part of a product of many rows.
TEST(Matmul, ProductsOfManyRowsPackTheWeightsThemselves) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = ops::to_device(random.floats({2000, 64}), device),
              w = ops::to_device(random.floats({64, 64}), device);
  for (int i = 0; i < 3; ++i) ops::matmul(x, w);
  EXPECT_EQ(prepared(w), 0U);
}

}  // namespace
}  // namespace lockstep::testing
