#include "apps/lockstep/example_outcomes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::app {
namespace {

TEST(ExampleOutcomes, CountsLabels) {
  ExampleOutcomes outcomes(2);
  // Two texts of two characters, of which the last one has no label.
  const double a = std::log(0.25), b = std::log(0.75);
  outcomes.add(2, std::vector<double>{a, b, b, a, a, b, 0, 0}, std::vector<std::int64_t>{0, 0, 1, -100});
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

TEST(ExampleOutcomes, HasNoTableOfTooManyClasses) {
  ExampleOutcomes outcomes(3, 2);
  outcomes.add(1, std::vector<double>{-2, -1, -3}, std::vector<std::int64_t>{1});
  EXPECT_TRUE(outcomes.confusion.empty());
  EXPECT_EQ(outcomes.right, 1);
}

TEST(ExampleOutcomes, AddsErrorsOfNumbers) {
  ExampleOutcomes outcomes;
  outcomes.add(2, std::vector<double>{1, 2, 3, 4}, std::vector<double>{1, 4, 2, 4});
  EXPECT_EQ(outcomes.absolute, 3);
  EXPECT_EQ(outcomes.squared, 5);
  EXPECT_EQ(outcomes.numbers, 4);
  EXPECT_EQ(outcomes.examples[1].loss, 1);
  EXPECT_EQ(outcomes.examples[1].targets, (std::vector<double>{2, 4}));
}

}  // namespace
}  // namespace lockstep::app
