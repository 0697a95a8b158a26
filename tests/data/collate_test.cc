// Batches of sequences of different lengths.

#include "lockstep/data/collate.h"

#include <gtest/gtest.h>

#include "lockstep/autograd/functions.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Integers = std::vector<std::int64_t>;

// Example i has i + 1 numbers i, and the label i.
struct Sequences : Dataset {
  std::int64_t size() const override { return 5; }
  Example get(std::int64_t i) const override {
    return {Tensor::from(Integers(static_cast<std::size_t>(i + 1), i), {i + 1}), Tensor::from(Integers{i}, {})};
  }
};

Example padded(const std::vector<Example>& examples) {
  return {pad_sequence(part_of_each(examples, 0), {.value = -1}), stack_parts(part_of_each(examples, 1))};
}

// Example 2 has a history in its part 1.
struct Traced : Dataset {
  std::int64_t size() const override { return 4; }
  Example get(std::int64_t i) const override { return {ones({2}), i == 2 ? as_leaf(ones({2})) * 2 : ones({2})}; }
};

// A batch is a copy, which would lose it.
TEST(CollateTest, ExamplesHaveNoHistory) {
  const char* way_out =
      "requires gradients, which a batch does not carry on: expected data without a history, as of "
      "detach()";
  const auto expect_refused = [&](DataLoader loader, const std::string& found) {
    EXPECT_ERROR(for (Example& batch : loader) batch.clear(), fmt::format("{} {}", found, way_out));
  };
  for (const int workers : {0, 1}) {
    expect_refused({Traced(), {.batch_size = 4, .workers = workers}}, "dataset: part 1 of example 2");
    expect_refused({Traced(), {.batch_size = 4, .collate = default_collate, .workers = workers}},
                   "collate: part 1 of example 2 of a batch");
    expect_refused({TensorDataset({ones({4, 2}), as_leaf(ones({4}))}), {.batch_size = 4, .workers = workers}},
                   "tensor dataset: part 1 of example 0");
  }
  const std::vector<Tensor> traced{ones({2}), as_leaf(ones({2}))};
  EXPECT_ERROR(stack_parts(traced), fmt::format("stack: tensor 1 {}", way_out));
  EXPECT_ERROR(pad_sequence(traced), fmt::format("pad_sequence: sequence 1 {}", way_out));
}

TEST(CollateTest, PadsToTheLongestOfTheBatch) {
  DataLoader loader(Sequences(), {.batch_size = 3, .collate = padded});
  auto batch = loader.begin();
  EXPECT_EQ((*batch)[0].shape(), (Shape{3, 3}));
  EXPECT_EQ((*batch)[0].to_vector<std::int64_t>(), (Integers{0, -1, -1, 1, 1, -1, 2, 2, 2}));
  ++batch;
  EXPECT_EQ((*batch)[0].shape(), (Shape{2, 5}));
  EXPECT_EQ((*batch)[1].to_vector<std::int64_t>(), (Integers{3, 4}));
  EXPECT_ERROR((void)(*DataLoader(Sequences(), {.batch_size = 3}).begin()).size(), "expected the same shape and type");
}

// A process that loads some rows pads them like the one that has the longest sequence.
TEST(CollateTest, AProcessWithSomeRowsPadsThemAsTheOthers) {
  const RowsOfBatch rows = [](std::int64_t n) { return std::pair<std::int64_t, std::int64_t>{0, n / 2}; };
  DataLoader loader(Sequences(), {.batch_size = 5, .collate = padded, .rows = rows});
  EXPECT_EQ((*loader.begin())[0].to_vector<std::int64_t>(), (Integers{0, -1, -1, -1, -1, 1, 1, -1, -1, -1}));
  const RowsOfBatch none = [](std::int64_t n) { return std::pair{n, n}; };
  DataLoader last(Sequences(), {.batch_size = 5, .collate = padded, .rows = none});
  EXPECT_EQ((*last.begin())[0].shape(), (Shape{0, 5}));
}

TEST(CollateTest, APaddedLengthMayBeGiven) {
  const std::vector<Tensor> rows{Tensor::from(std::vector<float>{1, 2}, {1, 2}),
                                 Tensor::from(std::vector<float>{3, 4, 5, 6}, {2, 2})};
  const Tensor all = pad_sequence(rows, {.length = 3});
  EXPECT_EQ(all.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(all.to_vector<float>(), (std::vector<float>{1, 2, 0, 0, 0, 0, 3, 4, 5, 6, 0, 0}));
  EXPECT_ERROR(pad_sequence(rows, {.length = 1}), "pad_sequence: a sequence of 2, expected at most 1");
}

TEST(CollateTest, TheTypeHoldsThePadding) {
  const std::vector<Tensor> words{Tensor::from(std::vector<std::int64_t>{1, 2}, {2})};
  EXPECT_ERROR(pad_sequence(words, {.value = 0.5}), "full: ");
  const std::vector<Tensor> masks{Tensor::from(std::vector<std::uint8_t>{1, 1}, {2})};
  EXPECT_ERROR(pad_sequence(masks, {.value = -1}), "full: ");
}

TEST(CollateTest, AnUndefinedPartIsAnError) {
  EXPECT_ERROR(default_collate({{Tensor()}}), "stack: tensor 0 is undefined");
}

TEST(CollateTest, AWrongResultIsAnError) {
  const auto wrong = [](const std::vector<Example>& examples) { return Example{examples[0][0]}; };
  DataLoader loader(Sequences(), {.batch_size = 3, .collate = wrong});
  EXPECT_ERROR(loader.begin(), "collate returned [1] i64 on host as part 0 of 3 examples");
}

}  // namespace
}  // namespace lockstep::testing
