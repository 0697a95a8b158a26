#include "lockstep/task/outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

// The log-probabilities of a row of logits.
std::vector<double> log_softmax_of(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - largest);
  std::vector<double> all;
  for (const double x : logits) all.push_back(x - largest - std::log(sum));
  return all;
}

}  // namespace

Outcomes::Outcomes(std::size_t classes, std::size_t most_in_table) : classes_(classes) {
  if (classes <= most_in_table) confusion.assign(classes, std::vector<double>(classes));
}

Outcomes::Outcomes(const DataSchema& schema)
    : Outcomes(schema.task == TaskKind::regression ? 0 : static_cast<std::size_t>(schema.outputs)) {
  mean_ = schema.target_mean;
  stddev_ = schema.target_stddev;
}

void Outcomes::add(const Tensor& outputs, const Tensor& targets) {
  const auto count = static_cast<std::size_t>(targets.size(0));
  if (count == 0) return;
  const std::vector<double> values = outputs.to(DType::f64).to_vector<double>();
  const std::size_t each = values.size() / count;
  const auto add_each = [&](const auto& all, const auto& add_one) {
    const std::size_t targets_each = all.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      add_one(std::span(values).subspan(i * each, each), std::span(all).subspan(i * targets_each, targets_each));
    }
  };
  if (classes_ > 0) {
    add_each(targets.to_vector<std::int64_t>(),
             [&](auto logits, auto labels_here) { add_labels(logits, labels_here); });
  } else {
    add_each(targets.to(DType::f64).to_vector<double>(), [&](auto found, auto wanted) { add_numbers(found, wanted); });
  }
}

void Outcomes::add_labels(std::span<const double> logits, std::span<const std::int64_t> given) {
  ExampleOutcome outcome;
  for (std::size_t t = 0; t < given.size(); ++t) {
    const std::vector<double> here = log_softmax_of(logits.subspan(t * classes_, classes_));
    outcome.finite = outcome.finite && std::ranges::none_of(here, [](double x) { return std::isnan(x); });
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

void Outcomes::add_numbers(std::span<const double> values, std::span<const double> targets) {
  ExampleOutcome outcome;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto in_units = [&](double normalized) { return normalized * stddev_.at(k) + mean_.at(k); };
    const double value = in_units(values[k]), target = in_units(targets[k]), error = value - target;
    outcome.finite = outcome.finite && std::isfinite(value);
    outcome.loss += std::abs(error);
    squared += error * error;
    if (k >= kMostNumbers) continue;
    outcome.targets.push_back(target);
    outcome.values.push_back(value);
  }
  absolute += outcome.loss;
  numbers += static_cast<double>(values.size());
  examples.push_back(std::move(outcome));
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

}  // namespace lockstep
