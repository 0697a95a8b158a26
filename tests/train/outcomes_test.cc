#include "lockstep/train/outcomes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

Tensor numbers(const std::vector<double>& values, const Shape& shape) { return Tensor::from(values, shape); }
Tensor labels(const std::vector<std::int64_t>& values, const Shape& shape) { return Tensor::from(values, shape); }

TEST(Outcomes, CountLabels) {
  Outcomes outcomes(2);
  // Two texts of two characters, of which the last one has no label. Logits are log-probabilities and a number.
  const double a = std::log(0.25), b = std::log(0.75);
  outcomes.add(numbers({a + 1, b + 1, b, a, a - 2, b - 2, 0, 0}, {2, 2, 2}), labels({0, 0, 1, -100}, {2, 2}));
  EXPECT_EQ(outcomes.confusion, (std::vector<std::vector<double>>{{1, 1}, {0, 1}}));
  EXPECT_EQ(outcomes.labels, 3);
  EXPECT_EQ(outcomes.right, 2);
  EXPECT_DOUBLE_EQ(outcomes.loss, -a - 2 * b);
  ASSERT_EQ(outcomes.examples.size(), 2U);
  EXPECT_DOUBLE_EQ(outcomes.examples[0].loss, (-a - b) / 2);
  EXPECT_EQ(outcomes.examples[0].losses.size(), 2U);
  EXPECT_DOUBLE_EQ(outcomes.examples[1].loss, -b);
  EXPECT_DOUBLE_EQ(outcomes.examples[1].probability, 0.75);
}

TEST(Outcomes, HaveNoTableOfTooManyClasses) {
  Outcomes outcomes(3, 2);
  outcomes.add(numbers({-2, -1, -3}, {1, 3}), labels({1}, {1}));
  EXPECT_TRUE(outcomes.confusion.empty());
  EXPECT_EQ(outcomes.right, 1);
}

// A probability of f32 is 0 from a loss of 104 on.
TEST(Outcomes, KnowTheOrderOfTheWorst) {
  Outcomes outcomes(2);
  outcomes.add(numbers({0, 200, 0, 150, 0, 30}, {3, 2}).to(DType::f32), labels({0, 0, 0}, {3}));
  EXPECT_EQ(outcomes.examples[0].loss, 200);
  EXPECT_EQ(outcomes.examples[1].loss, 150);
  EXPECT_NEAR(outcomes.examples[2].loss, 30, 1e-12);
}

TEST(Outcomes, TellWhatIsNotFinite) {
  Outcomes classes(2), values = Outcomes::of_numbers({0}, {1});
  classes.add(numbers({0, 1, NAN, 1, HUGE_VAL, 1, -HUGE_VAL, 1}, {4, 2}), labels({0, 0, 0, 0}, {4}));
  values.add(numbers({0, NAN, HUGE_VAL}, {3, 1}), numbers({0, 0, 0}, {3, 1}));
  const auto finite = [](const Outcomes& o) {
    std::vector<bool> all;
    for (const ExampleOutcome& e : o.examples) all.push_back(e.finite);
    return all;
  };
  EXPECT_EQ(finite(classes), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(finite(values), (std::vector<bool>{true, false, false}));
}

TEST(Outcomes, AddErrorsOfNumbersInTheUnitsOfTheData) {
  Outcomes outcomes = Outcomes::of_numbers({10, 20}, {2, 1});
  outcomes.add(numbers({1, 2, 3, 4}, {2, 2}), numbers({1, 4, 2, 4}, {2, 2}));
  EXPECT_EQ(outcomes.absolute, 4);
  EXPECT_EQ(outcomes.squared, 8);
  EXPECT_EQ(outcomes.numbers, 4);
  EXPECT_EQ(outcomes.examples[1].loss, 2);
  EXPECT_EQ(outcomes.examples[1].targets, (std::vector<double>{14, 24}));
}

// The log-probabilities of two logits near 0 are equal in f64, and their probabilities in f32. NaN is the largest.
TEST(Outcomes, SayWhatArgmaxSays) {
  const std::vector<double> logits{1e-20, 2e-20, 0, 0, NAN, HUGE_VAL, 0, 1, HUGE_VAL, 3, 3, -HUGE_VAL};
  const Tensor outputs = numbers(logits, {4, 3}).to(DType::f32);
  Outcomes outcomes(3);
  outcomes.add(outputs, labels({0, 0, 0, 0}, {4}));
  std::vector<std::int64_t> said;
  for (const ExampleOutcome& e : outcomes.examples) said.push_back(e.said);
  EXPECT_EQ(said, (std::vector<std::int64_t>{1, 1, 2, 0}));
  EXPECT_EQ(said, argmax(outputs, 1).to_vector<std::int64_t>());
}

TEST(Outcomes, CountALabelThatIsNoClassAsWrong) {
  Outcomes outcomes(2);
  outcomes.add(numbers({1, 0, 1, 0, 1, 0, 1, 0}, {4, 2}), labels({0, 2, -1, -100}, {4}));
  EXPECT_EQ(outcomes.labels, 3);
  EXPECT_EQ(outcomes.right, 1);
  EXPECT_EQ(outcomes.confusion, (std::vector<std::vector<double>>{{1, 0}, {0, 0}}));
  EXPECT_EQ(outcomes.examples[1].loss, HUGE_VAL);
  EXPECT_EQ(outcomes.examples[2].truth, -1);
  EXPECT_FALSE(outcomes.examples[3].labeled);
}

TEST(Outcomes, OfOutputsThatDoNotFitAreErrors) {
  Outcomes classes(3), values = Outcomes::of_numbers({0}, {1});
  EXPECT_ERROR(classes.add(numbers({1, 2}, {1, 2}), labels({0}, {1})), "expected 3 logits for each target");
  EXPECT_ERROR(values.add(numbers({1, 2}, {1, 2}), numbers({0}, {1, 1})), "expected a number for each target");
}

TEST(Outcomes, OfALoaderAreInItsOrderUntilItIsToEnd) {
  DataLoader loader(std::make_shared<TensorDataset>(
                        std::vector<Tensor>{numbers({0, 1, 2, 3, 4}, {5, 1}), numbers({0, 0, 0, 0, 0}, {5, 1})}),
                    {.batch_size = 2});
  const BatchFunction forward = [](const Example& batch) {
    return BatchOutputs{.outputs = batch[0], .targets = batch[1]};
  };
  Outcomes all = Outcomes::of_numbers({0}, {1});
  all.add_all(loader, forward);
  ASSERT_EQ(all.examples.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(all.examples[i].loss, static_cast<double>(i));
  Outcomes some = Outcomes::of_numbers({0}, {1});
  some.add_all(loader, forward, [batches = 0]() mutable { return ++batches <= 2; });
  EXPECT_EQ(some.examples.size(), 4U);
}

}  // namespace
}  // namespace lockstep
