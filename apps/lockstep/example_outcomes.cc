#include "example_outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

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

std::string shortest_text(double value, const DataSchema& schema, std::size_t k) {
  const double mean = schema.target_mean.at(k), stddev = schema.target_stddev.at(k);
  const auto normalized = [&](double x) { return static_cast<float>((x - mean) / stddev); };
  for (int digits = 1; digits < std::numeric_limits<double>::max_digits10; ++digits) {
    const std::string text = fmt::format("{:.{}g}", value, digits);
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    if (normalized(read) == normalized(value)) return fmt::format("{}", read);
  }
  return fmt::format("{}", value);
}

double r2_score(const std::vector<ExampleOutcome>& examples) {
  double sum = 0, errors = 0, distances = 0;
  for (const ExampleOutcome& e : examples) sum += e.targets.at(0);
  const double mean = sum / static_cast<double>(examples.size());
  for (const ExampleOutcome& e : examples) {
    errors += (e.values.at(0) - e.targets[0]) * (e.values[0] - e.targets[0]);
    distances += (e.targets[0] - mean) * (e.targets[0] - mean);
  }
  return distances == 0 ? std::numeric_limits<double>::quiet_NaN() : 1 - errors / distances;
}

}  // namespace lockstep::app
