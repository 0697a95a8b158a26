#include "lockstep/task/outcomes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/task/run.h"

namespace lockstep {
namespace {

Tensor numbers(const std::vector<double>& values, const Shape& shape) { return Tensor::from(values, shape); }
Tensor labels(const std::vector<std::int64_t>& values, const Shape& shape) { return Tensor::from(values, shape); }

DataSchema numbers_of(const std::vector<double>& mean, const std::vector<double>& stddev) {
  return {.task = TaskKind::regression, .outputs = std::ssize(mean), .target_mean = mean, .target_stddev = stddev};
}

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
  Outcomes classes(2), values(numbers_of({0}, {1}));
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
  Outcomes outcomes(numbers_of({10, 20}, {2, 1}));
  outcomes.add(numbers({1, 2, 3, 4}, {2, 2}), numbers({1, 4, 2, 4}, {2, 2}));
  EXPECT_EQ(outcomes.absolute, 4);
  EXPECT_EQ(outcomes.squared, 8);
  EXPECT_EQ(outcomes.numbers, 4);
  EXPECT_EQ(outcomes.examples[1].loss, 2);
  EXPECT_EQ(outcomes.examples[1].targets, (std::vector<double>{14, 24}));
}

// What predict and exported files say, and what eval counts, is of the same outputs.
TEST(Outcomes, AreOfTheAnswersOfARun) {
  const DataSchema classes{.task = TaskKind::classification, .outputs = 3};
  const Tensor logits = numbers({0.5, 2, -1, 3, 3.5, 0}, {2, 3});
  Outcomes of_classes(classes);
  of_classes.add(logits, labels({1, 0}, {2}));
  const std::vector<double> probabilities = answers_of(logits, classes).to_vector<double>();
  EXPECT_NEAR(of_classes.examples[0].loss, -std::log(probabilities[1]), 1e-12);
  EXPECT_NEAR(of_classes.examples[1].loss, -std::log(probabilities[3]), 1e-12);

  const DataSchema values = numbers_of({10, 20}, {2, 3});
  const Tensor outputs = numbers({1, 2}, {1, 2});
  Outcomes of_numbers(values);
  of_numbers.add(outputs, numbers({0, 0}, {1, 2}));
  EXPECT_EQ(of_numbers.examples[0].values, answers_of(outputs, values).to_vector<double>());
}

}  // namespace
}  // namespace lockstep
