// Internal: what a model makes of labeled examples: which classes it confuses, and how wrong it is in each example.
// `lockstep eval` and the page of a run get their numbers from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/task/data_schema.h"

namespace lockstep {

struct ExampleOutcome {
  // Classification: minus the log-probability of the right class; for a text, its mean over the characters. Regression:
  // the sum of absolute errors.
  double loss = 0;
  bool labeled = false;                     // classification: whether it has a valid label
  bool finite = true;                       // false: a probability is NaN, or a number not finite
  std::size_t truth = 0, said = 0;          // classes; for a text, of its last character
  double probability = 0;                   // of the class that the model said
  std::vector<double> targets{}, values{};  // the first kMostNumbers numbers
  std::vector<float> losses{};              // the loss of each label
};

class Outcomes {
 public:
  static constexpr std::size_t kMostNumbers = 4;  // of ExampleOutcome::targets and values

  // Row i, column j: number of labels of class i where the model said j. Empty for regression and for too many classes.
  std::vector<std::vector<double>> confusion;
  std::vector<ExampleOutcome> examples;
  double loss = 0, labels = 0, right = 0;         // sum over all labels, their number, and the number of right answers
  double absolute = 0, squared = 0, numbers = 0;  // sums of errors over all numbers, and their count

  // Makes no table for more classes than `most_in_table`: its size is their square.
  explicit Outcomes(std::size_t classes, std::size_t most_in_table = SIZE_MAX);
  // For classes, or for numbers in the units of the data.
  explicit Outcomes(const DataSchema& schema);

  // Adds examples. `outputs` are logits [examples, classes] or [examples, labels of each, classes], or normalized
  // numbers [examples, numbers of each]. `targets` are labels, or numbers normalized alike. Ignores a label that is no
  // class, such as kIgnoredLabel.
  void add(const Tensor& outputs, const Tensor& targets);

 private:
  void add_labels(std::span<const double> logits, std::span<const std::int64_t> labels);
  void add_numbers(std::span<const double> values, std::span<const double> targets);

  std::size_t classes_ = 0;  // 0: numbers
  std::vector<double> mean_, stddev_;
};

// Returns the shortest text of number k of an example with the same normalized f32: 217181, not 217180.997455.
std::string shortest_text(double value, const DataSchema& schema, std::size_t k);
// 1 - squared errors / squared distances of targets from their mean, of number 0; NaN if all targets are equal.
double r2_score(const std::vector<ExampleOutcome>& examples);

}  // namespace lockstep
