#include "lockstep/train/outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/no_grad.h"

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

Outcomes Outcomes::of_numbers(std::vector<double> mean, std::vector<double> stddev) {
  Outcomes outcomes(0);
  outcomes.of_labels_ = false;
  outcomes.mean_ = std::move(mean);
  outcomes.stddev_ = std::move(stddev);
  return outcomes;
}

void Outcomes::add(const Tensor& outputs, const Tensor& targets) {
  const auto count = static_cast<std::size_t>(targets.size(0));
  if (count == 0) return;
  if (of_labels_ && classes_ == 0) classes_ = static_cast<std::size_t>(outputs.size(outputs.shape().dim() - 1));
  const std::int64_t each_target = of_labels_ ? static_cast<std::int64_t>(classes_) : 1;
  check(outputs.numel() == targets.numel() * each_target,
        "outcomes: outputs are {}, targets {}, expected {} for each target", outputs.describe(), targets.describe(),
        of_labels_ ? fmt::format("{} logits", each_target) : "a number");
  const std::vector<double> values = outputs.to(DType::f64).to_vector<double>();
  const std::size_t each = values.size() / count;
  const auto add_each = [&](const auto& all, const auto& add_one) {
    const std::size_t targets_each = all.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      add_one(std::span(values).subspan(i * each, each), std::span(all).subspan(i * targets_each, targets_each));
    }
  };
  if (of_labels_) {
    add_each(targets.to_vector<std::int64_t>(),
             [&](auto logits, auto labels_here) { add_labels(logits, labels_here); });
  } else {
    add_each(targets.to(DType::f64).to_vector<double>(), [&](auto found, auto wanted) { add_numbers(found, wanted); });
  }
}

void Outcomes::add_all(DataLoader& loader, const BatchFunction& forward, const std::function<bool()>& goes_on) {
  const NoGradGuard no_grad;
  // The devices compute a batch while the host looks at the outputs of the one before.
  BatchOutputs last;
  const auto add_last = [&] {
    if (last.outputs.defined()) add(last.outputs, last.targets);
  };
  for (const Example& batch : loader) {
    if (goes_on && !goes_on()) break;
    BatchOutputs next = forward(batch);
    add_last();
    last = std::move(next);
  }
  add_last();
}

void Outcomes::add_labels(std::span<const double> logits, std::span<const std::int64_t> given) {
  ExampleOutcome outcome;
  for (std::size_t t = 0; t < given.size(); ++t) {
    const std::span<const double> of_label = logits.subspan(t * classes_, classes_);
    const std::vector<double> here = log_softmax_of(of_label);
    outcome.finite = outcome.finite && std::ranges::none_of(here, [](double x) { return std::isnan(x); });
    const std::int64_t truth = given[t];
    if (truth == kIgnoredLabel) continue;
    const bool known = truth >= 0 && truth < static_cast<std::int64_t>(classes_);
    outcome.truth = truth;
    outcome.said = class_of(of_label);
    const auto row = static_cast<std::size_t>(truth), column = static_cast<std::size_t>(outcome.said);
    outcome.probability = std::exp(here[column]);
    if (known && !confusion.empty()) ++confusion[row][column];
    right += outcome.said == truth ? 1 : 0;
    const double here_loss = known ? -here[row] : std::numeric_limits<double>::infinity();
    outcome.losses.push_back(static_cast<float>(here_loss));
    outcome.loss += here_loss;
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

std::int64_t class_of(std::span<const double> logits) {
  std::size_t best = 0;
  for (std::size_t c = 1; c < logits.size(); ++c) {
    if (logits[c] > logits[best] || (std::isnan(logits[c]) && !std::isnan(logits[best]))) best = c;
  }
  return static_cast<std::int64_t>(best);
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
