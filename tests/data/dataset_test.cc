
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/data/map_dataset.h"
#include "lockstep/data/random_dataset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using Floats = std::vector<float>;
using Indices = std::vector<std::int64_t>;

// The examples `indices`, with keys that nobody needs.
Example batch_of(const Dataset& data, const Indices& indices) {
  const std::vector<RandomKey> keys(indices.size());
  return data.batch(indices, keys);
}

std::shared_ptr<const Dataset> letters() {
  return std::make_shared<TensorDataset>(
      std::vector<Tensor>{Tensor::from(Floats{0, 1, 10, 11, 20, 21}, {3, 2}), Tensor::from(Indices{5, 6, 7}, {3})});
}

TEST(TensorDataset, GivesRows) {
  const auto data = letters();
  EXPECT_EQ(data->size(), 3);
  const Example example = data->get(1);
  ASSERT_EQ(example.size(), 2u);
  EXPECT_EQ(example[0].shape(), (Shape{2}));
  EXPECT_EQ(example[0].to_vector<float>(), (Floats{10, 11}));
  EXPECT_EQ(example[1].shape(), (Shape{}));
  EXPECT_EQ(example[1].item<std::int64_t>(), 6);

  const Example batch = batch_of(*data, {2, 0, 2});
  EXPECT_EQ(batch[0].shape(), (Shape{3, 2}));
  EXPECT_EQ(batch[0].to_vector<float>(), (Floats{20, 21, 0, 1, 20, 21}));
  EXPECT_EQ(batch[1].to_vector<std::int64_t>(), (Indices{7, 5, 7}));
}

// A copy to the host that is still in flight.
TEST(TensorDataset, WaitsForItsTensors) {
  Runtime runtime({.cpu_devices = 1});
  const NoGradGuard no_grad;
  const Tensor ones = full({700, 700}, 1, {.device = runtime.devices()[0]});
  const TensorDataset data({matmul(matmul(ones, ones), ones).to(kHost, {.non_blocking = true})});
  const std::int64_t last = 699;
  const RandomKey key{};
  EXPECT_EQ(data.batch({&last, 1}, {&key, 1}).at(0).to_vector<float>(), std::vector<float>(700, 490000));
}

TEST(TensorDataset, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(TensorDataset({}), "no tensors");
  EXPECT_ERROR(TensorDataset({Tensor::host({3}), Tensor::host({2})}), "2 rows, the first one has 3");
  EXPECT_ERROR(TensorDataset({Tensor::host({})}), "at least one axis");
  EXPECT_ERROR(letters()->get(3), "3");
  EXPECT_ERROR(letters()->get(-1), "-1");
  EXPECT_ERROR(batch_of(*letters(), {0, 3}), "3");
}

TEST(RandomDataset, IsStandardNormalAndTheSameEveryTime) {
  const RandomDataset data({.examples = 2000, .length = 5, .seed = 1});
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const Floats x = data.get(i)[0].to_vector<float>();
    ASSERT_EQ(x.size(), 5u);
    for (const float v : x) sum += v, squares += v * v;
  }
  EXPECT_NEAR(sum / 10'000, 0, 0.04);
  EXPECT_NEAR(squares / 10'000, 1, 0.06);
  auto row = [](std::int64_t i, std::uint64_t seed) {
    return RandomDataset({.examples = 9, .length = 5, .seed = seed}).get(i)[0].to_vector<float>();
  };
  EXPECT_EQ(row(3, 1), data.get(3)[0].to_vector<float>());
  EXPECT_NE(row(3, 1), row(4, 1));
  EXPECT_NE(row(3, 1), row(3, 2));
  EXPECT_ERROR(RandomDataset({.examples = 3}), "length 0");
  EXPECT_ERROR(data.get(2000), "2000");
}

TEST(MapDataset, TransformsEachExample) {
  const MapDataset data(letters(), [](Example example, RandomKey key) {
    Tensor x = Tensor::host({1});
    x.data_ptr<float>()[0] = example[0].to_vector<float>()[0] + static_cast<float>(key.seed);
    return Example{x};
  });
  EXPECT_EQ(data.size(), 3);
  EXPECT_EQ(data.get(1, {.seed = 100})[0].item<float>(), 110);
  const std::vector<RandomKey> keys{{.seed = 1}, {.seed = 2}};
  EXPECT_EQ(data.batch(Indices{0, 2}, keys)[0].to_vector<float>(), (Floats{1, 22}));
  EXPECT_ERROR(MapDataset(nullptr, [](Example e, RandomKey) { return e; }), "no data");
  EXPECT_ERROR(MapDataset(letters(), nullptr), "no transform");
}

TEST(HeadDataset, HasTheFirstExamplesOnly) {
  const HeadDataset two(letters(), 2);
  EXPECT_EQ(two.size(), 2);
  EXPECT_EQ(two.get(1)[1].item<std::int64_t>(), 6);
  EXPECT_EQ(batch_of(two, {1, 0})[1].to_vector<std::int64_t>(), (Indices{6, 5}));
  EXPECT_ERROR(two.get(2), "head dataset: example 2 is out of range [0, 2)");
  EXPECT_ERROR(two.get(-1), "example -1 is out of range");
  EXPECT_EQ(HeadDataset(letters(), 99).size(), 3);
  EXPECT_EQ(HeadDataset(letters(), 0).size(), 0);
  EXPECT_ERROR(HeadDataset(std::shared_ptr<const Dataset>(), 1), "head dataset: no data set");
  EXPECT_ERROR(HeadDataset(letters(), -1), "-1 examples");
}

TEST(HeadDataset, MayOwnItsDataSet) {
  const HeadDataset few(TensorDataset({Tensor::from(Floats{1, 2, 3}, {3})}), 2);
  EXPECT_EQ(few.size(), 2);
  const MapDataset twice(few, [](Example e, RandomKey) { return Example{e[0], e[0]}; });
  EXPECT_EQ(twice.size(), 2);
  EXPECT_EQ(twice.get(1)[1].item<float>(), 2);
}

// Parts of any number and shape, from a data set that has size() and get() alone.
struct Squares : Dataset {
  std::int64_t size() const override { return 5; }
  using Dataset::get;
  Example get(std::int64_t i) const override {
    const auto x = static_cast<float>(i);
    if (i == 4) return {Tensor::from(Floats{x}, {1})};  // a part is missing
    if (i == 3) return {Tensor::from(Floats{x, x}, {2}), Tensor::from(Indices{i}, {})};
    return {Tensor::from(Floats{x}, {1}), Tensor::from(Indices{i * i}, {})};
  }
};

TEST(Dataset, StacksExamplesIntoBatches) {
  const Example batch = batch_of(Squares(), {2, 1});
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0].shape(), (Shape{2, 1}));
  EXPECT_EQ(batch[0].to_vector<float>(), (Floats{2, 1}));
  EXPECT_EQ(batch[1].shape(), (Shape{2}));
  EXPECT_EQ(batch[1].to_vector<std::int64_t>(), (Indices{4, 1}));
  EXPECT_ERROR(batch_of(Squares(), {0, 3}), "stack: tensor 1 is [2] f32");
  EXPECT_ERROR(batch_of(Squares(), {0, 4}), "example 4 has 1 parts, others have 2");
  EXPECT_ERROR(batch_of(Squares(), {}), "an empty batch");
}

// Transforms in the loader's threads are operations on host tensors.
struct Augmented : Dataset {
  std::int64_t size() const override { return 40; }
  Example get(std::int64_t index) const override { return get(index, {}); }
  Example get(std::int64_t index, RandomKey key) const override {
    const auto place = [key](std::uint64_t draw) { return static_cast<std::int64_t>(random_below(key, draw, 5)); };
    Tensor x = randn({3, 8, 8}, {.seed = static_cast<std::uint64_t>(index)});
    x = pad(x, {2, 2, 2, 2}).narrow(1, place(0), 8).narrow(2, place(1), 8);
    return {(x - mean_) / std_, Tensor::from(Indices{index}, {})};
  }
  Tensor mean_ = full({3, 1, 1}, 0.5), std_ = full({3, 1, 1}, 0.25);
};

TEST(Dataset, TransformsAreOperationsInAnyThread) {
  const auto all = [](int workers) {
    Floats found;
    for (const Example& batch : DataLoader(std::make_shared<Augmented>(), {.batch_size = 7, .workers = workers})) {
      const Floats part = batch[0].to_vector<float>();
      found.insert(found.end(), part.begin(), part.end());
    }
    return found;
  };
  const Floats found = all(0);
  EXPECT_EQ(found.size(), 40U * 3 * 64);
  EXPECT_GT(std::ranges::count(found, -2.0F), 100);  // of the margin
  EXPECT_EQ(all(4), found);
}

TEST(Dataset, StacksExamplesOfAnyLayout) {
  struct Columns : Dataset {
    std::int64_t size() const override { return 2; }
    Example get(std::int64_t) const override { return {arange(12).reshape({1, 3, 2, 2}).to(Layout::channels_last)}; }
  };
  Indices expected(24);
  for (std::size_t i = 0; i < 24; ++i) expected[i] = static_cast<std::int64_t>(i % 12);
  EXPECT_EQ(batch_of(Columns(), {0, 1})[0].to_vector<std::int64_t>(), expected);
}

TEST(FashionMnist, ScalesPixelsToOne) {
  MnistFiles files{.count = 2, .rows = 1, .cols = 3, .pixels = {0, 51, 255, 255, 0, 1}, .labels = {9, 4}};
  const FashionMnist data(files);
  EXPECT_EQ(data.size(), 2);
  const Example one = data.get(0);
  EXPECT_EQ(one[0].shape(), (Shape{1, 1, 3}));
  EXPECT_EQ(one[0].to_vector<float>(), (Floats{0, 0.2f, 1}));
  EXPECT_EQ(one[1].shape(), (Shape{}));
  EXPECT_EQ(one[1].item<std::int64_t>(), 9);
  const Example batch = batch_of(data, {1, 0});
  EXPECT_EQ(batch[0].shape(), (Shape{2, 1, 1, 3}));
  EXPECT_EQ(batch[0].to_vector<float>(), (Floats{1, 0, 1.0f / 255, 0, 0.2f, 1}));
  EXPECT_EQ(batch[1].to_vector<std::int64_t>(), (Indices{4, 9}));
  EXPECT_ERROR(data.get(2), "example 2 is out of range [0, 2)");
  EXPECT_ERROR(data.get(-1), "example -1 is out of range [0, 2)");
  // A batch reads nothing before it has checked all of its indices.
  const std::vector<std::int64_t> far{0, 1, 0, 1, 0, std::numeric_limits<std::int64_t>::max()};
  EXPECT_ERROR(data.batch(far, std::vector<RandomKey>(far.size())),
               "example 9223372036854775807 is out of range [0, 2)");
}

}  // namespace
}  // namespace lockstep
