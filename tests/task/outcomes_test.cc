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

// What predict and exported files say, and what eval counts, is of the same outputs.
TEST(SchemaOutcomes, AreOfTheAnswersOfARun) {
  const DataSchema classes{.task = TaskKind::classification, .outputs = 3};
  const Tensor logits = numbers({0.5, 2, -1, 3, 3.5, 0}, {2, 3});
  Outcomes of_classes = outcomes_of(classes);
  of_classes.add(logits, labels({1, 0}, {2}));
  const std::vector<double> probabilities = answers_of(logits, classes).to_vector<double>();
  EXPECT_NEAR(of_classes.examples[0].loss, -std::log(probabilities[1]), 1e-12);
  EXPECT_NEAR(of_classes.examples[1].loss, -std::log(probabilities[3]), 1e-12);

  const DataSchema values = numbers_of({10, 20}, {2, 3});
  const Tensor outputs = numbers({1, 2}, {1, 2});
  Outcomes of_numbers = outcomes_of(values);
  of_numbers.add(outputs, numbers({0, 0}, {1, 2}));
  EXPECT_EQ(of_numbers.examples[0].values, answers_of(outputs, values).to_vector<double>());
}

}  // namespace
}  // namespace lockstep
