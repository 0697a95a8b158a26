// Parts of data sets, and several of them.

#include "lockstep/data/subset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lockstep/data/concat_dataset.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

using Integers = std::vector<std::int64_t>;

// 0, first + 1, ..., one in each example.
TensorDataset counted(std::int64_t size, std::int64_t first = 0) {
  Integers all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(first + i);
  return TensorDataset({Tensor::from(all, {size})});
}

Integers examples_of(const Dataset& data) {
  Integers all;
  for (std::int64_t i = 0; i < data.size(); ++i) all.push_back(data.get(i)[0].item<std::int64_t>());
  return all;
}

TEST(SubsetTest, HasTheseExamplesInThisOrder) {
  const Subset some(counted(10), {7, 2, 2});
  EXPECT_EQ(examples_of(some), (Integers{7, 2, 2}));
  DataLoader loader(some, {.batch_size = 3});
  EXPECT_EQ((*loader.begin())[0].to_vector<std::int64_t>(), (Integers{7, 2, 2}));
  EXPECT_ERROR(Subset(counted(10), {10}), "subset: example 10 of a data set of 10 examples");
}

TEST(SubsetTest, ARandomSplitCoversTheData) {
  for (const std::vector<double>& lengths : {std::vector{0.5, 0.3, 0.2}, {6, 3, 2}}) {
    const std::vector<Subset> parts = random_split(counted(11), lengths, 5);
    ASSERT_EQ(parts.size(), 3U);
    EXPECT_EQ(parts[0].size(), 6);
    EXPECT_EQ(parts[1].size(), 3);
    EXPECT_EQ(parts[2].size(), 2);
    std::set<std::int64_t> all;
    for (const Subset& part : parts) {
      for (const std::int64_t example : examples_of(part)) EXPECT_TRUE(all.insert(example).second);
    }
    EXPECT_EQ(all.size(), 11U);
    EXPECT_FALSE(std::ranges::is_sorted(parts[0].indices()));
    EXPECT_EQ(random_split(counted(11), lengths, 5)[0].indices(), parts[0].indices());
    EXPECT_NE(random_split(counted(11), lengths, 6)[0].indices(), parts[0].indices());
  }
  EXPECT_ERROR(random_split(counted(11), {6, 3}, 5), "lengths that add up to 9, expected 11");
  EXPECT_ERROR(random_split(counted(11), {0.5, 0.4}, 5), "expected shares that add up to 1");
}

TEST(ConcatDatasetTest, HasOneAfterTheOther) {
  const ConcatDataset both(counted(3), counted(0), counted(2, 100));
  EXPECT_EQ(examples_of(both), (Integers{0, 1, 2, 100, 101}));
  EXPECT_ERROR(both.get(5), "concat dataset: example 5 is out of range [0, 5)");
}

}  // namespace
}  // namespace lockstep::testing
