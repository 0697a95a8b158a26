#include "lockstep/ops/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/ops/copy.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/storage.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

std::size_t prepared(const Array& w) {
  return static_cast<std::size_t>(
      std::ranges::count_if(w.storage()->derived, [](const Storage::Derived& d) { return d.storage != nullptr; }));
}

// The first product after an update packs the weights itself.
TEST(Matmul, ProductsOfOneUpdateSharePreparedWeights) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = random.floats({8, 200}).to(device), w = random.floats({96, 200}).to(device);
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
  const Array x = random.floats({8, 96}).to(device), w = random.floats({96, 96}).to(device);
  const auto product = [&](bool transposed) {
    return values(ops::matmul(x, w, {}, {.options = {.transpose_b = transposed}}));
  };
  const std::vector<double> plain = product(false), transposed = product(true);
  EXPECT_NE(plain, transposed);
  EXPECT_EQ(product(false), plain);
  EXPECT_EQ(product(true), transposed);
  EXPECT_EQ(prepared(w), 2U);
}

// Packing is a small part of a product of many rows.
TEST(Matmul, ProductsOfManyRowsPackTheWeightsThemselves) {
  Runtime runtime({.cpu_devices = 1});
  const Device device = runtime.devices()[0];
  Random random(1);
  const Array x = random.floats({2000, 64}).to(device), w = random.floats({64, 64}).to(device);
  for (int i = 0; i < 3; ++i) ops::matmul(x, w);
  EXPECT_EQ(prepared(w), 0U);
}

}  // namespace
}  // namespace lockstep::testing
