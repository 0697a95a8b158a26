// What a model makes of labeled examples: which classes it confuses, and how wrong it is in each example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/task/data_schema.h"

namespace lockstep::app {

struct ExampleOutcome {
  // Of classes: minus the logarithm of the right one's probability; of a text: its mean over the characters. Of
  // numbers: the sum of absolute errors.
  double loss = 0;
  bool labeled = false;                     // of classes: the others have no label
  std::size_t truth = 0, said = 0;          // classes; of a text: of its last character
  double probability = 0;                   // of the class that the model said
  std::vector<double> targets{}, values{};  // the first numbers
  std::vector<float> losses{};              // of each label
};

class ExampleOutcomes {
 public:
  static constexpr std::size_t kMostNumbers = 4;  // of ExampleOutcome::targets and values

  // Row i, column j: labels of class i where the model said j. Empty for numbers, and for too many classes.
  std::vector<std::vector<double>> confusion;
  std::vector<ExampleOutcome> examples;
  double loss = 0, labels = 0, right = 0;         // the sum over all labels, how many they are, and how many are right
  double absolute = 0, squared = 0, numbers = 0;  // sums of errors over all numbers, and how many there are

  // 0 classes: numbers. Of more than `most_in_table`, there is no table, whose size is their square.
  explicit ExampleOutcomes(std::size_t classes = 0, std::size_t most_in_table = SIZE_MAX);

  // Adds examples of classes: logarithms of probabilities [examples, labels of each, classes], and all labels. One that
  // is no class, such as kIgnoredLabel, is not counted.
  void add(std::size_t count, std::span<const double> log_probabilities, std::span<const std::int64_t> labels);
  // Adds examples of numbers [examples, numbers of each] in the units of the data.
  void add(std::size_t count, std::span<const double> values, std::span<const double> targets);

 private:
  void add_labels(std::span<const double> log_probabilities, std::span<const std::int64_t> labels);
  void add_numbers(std::span<const double> values, std::span<const double> targets);

  std::size_t classes_;
};

// Normalized numbers [examples, outputs] in the units of the data.
std::vector<double> in_units(std::vector<double> numbers, const DataSchema& schema);
// The shortest text of number k of an example that is the same normalized f32: 217181, not 217180.997455.
std::string shortest_text(double value, const DataSchema& schema, std::size_t k);
// 1 - squared errors / squared distances from the mean, of the first numbers; NaN if these are all equal.
double r2_score(const std::vector<ExampleOutcome>& examples);

}  // namespace lockstep::app
