#include "example_outcomes.h"

#include <algorithm>
#include <cmath>

namespace lockstep::app {

ExampleOutcomes::ExampleOutcomes(std::size_t classes, std::size_t most_in_table) : classes_(classes) {
  if (classes <= most_in_table) confusion.assign(classes, std::vector<double>(classes));
}

void ExampleOutcomes::add(std::size_t count, std::span<const double> log_probabilities,
                          std::span<const std::int64_t> all) {
  if (count == 0) return;
  const std::size_t each = all.size() / count, numbers_each = log_probabilities.size() / count;
  for (std::size_t i = 0; i < count; ++i) {
    add_labels(log_probabilities.subspan(i * numbers_each, numbers_each), all.subspan(i * each, each));
  }
}

void ExampleOutcomes::add(std::size_t count, std::span<const double> values, std::span<const double> targets) {
  if (count == 0) return;
  const std::size_t each = values.size() / count;
  for (std::size_t i = 0; i < count; ++i) add_numbers(values.subspan(i * each, each), targets.subspan(i * each, each));
}

void ExampleOutcomes::add_labels(std::span<const double> log_probabilities, std::span<const std::int64_t> given) {
  ExampleOutcome outcome;
  for (std::size_t t = 0; t < given.size(); ++t) {
    const auto here = log_probabilities.subspan(t * classes_, classes_);
    if (given[t] < 0 || given[t] >= static_cast<std::int64_t>(classes_)) continue;
    outcome.truth = static_cast<std::size_t>(given[t]);
    outcome.said = static_cast<std::size_t>(std::ranges::max_element(here) - here.begin());
    outcome.probability = std::exp(here[outcome.said]);
    if (!confusion.empty()) ++confusion[outcome.truth][outcome.said];
    right += outcome.said == outcome.truth ? 1 : 0;
    outcome.losses.push_back(static_cast<float>(-here[outcome.truth]));
    outcome.loss -= here[outcome.truth];
  }
  loss += outcome.loss;
  labels += static_cast<double>(outcome.losses.size());
  outcome.labeled = !outcome.losses.empty();
  if (outcome.labeled) outcome.loss /= static_cast<double>(outcome.losses.size());
  examples.push_back(std::move(outcome));
}

void ExampleOutcomes::add_numbers(std::span<const double> values, std::span<const double> targets) {
  ExampleOutcome outcome;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const double error = values[k] - targets[k];
    outcome.loss += std::abs(error);
    squared += error * error;
    if (k >= kMostNumbers) continue;
    outcome.targets.push_back(targets[k]);
    outcome.values.push_back(values[k]);
  }
  absolute += outcome.loss;
  numbers += static_cast<double>(values.size());
  examples.push_back(std::move(outcome));
}

std::vector<double> in_units(std::vector<double> numbers, const DataSchema& schema) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t k = i % schema.target_stddev.size();
    numbers[i] = numbers[i] * schema.target_stddev[k] + schema.target_mean[k];
  }
  return numbers;
}

}  // namespace lockstep::app
