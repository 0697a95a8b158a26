// Internal: what a model makes of labeled examples: which classes it confuses, and how wrong it is in each example.
// `lockstep eval` and the page of a run have their numbers from here.
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
  // Of classes: minus the log-probability of the right one; of a text: its mean over the characters. Of numbers: the
  // sum of absolute errors.
  double loss = 0;
  bool labeled = false;                     // of classes: the others have no label
  bool finite = true;                       // whether the model's outputs give probabilities, or numbers
  std::size_t truth = 0, said = 0;          // classes; of a text: of its last character
  double probability = 0;                   // of the class that the model said
  std::vector<double> targets{}, values{};  // the first numbers
  std::vector<float> losses{};              // of each label
};

class Outcomes {
 public:
  static constexpr std::size_t kMostNumbers = 4;  // of ExampleOutcome::targets and values

  // Row i, column j: labels of class i where the model said j. Empty for numbers, and for too many classes.
  std::vector<std::vector<double>> confusion;
  std::vector<ExampleOutcome> examples;
  double loss = 0, labels = 0, right = 0;         // the sum over all labels, how many they are, and how many are right
  double absolute = 0, squared = 0, numbers = 0;  // sums of errors over all numbers, and how many there are

  // Makes no table for more classes than `most_in_table`: its size is their square.
  explicit Outcomes(std::size_t classes, std::size_t most_in_table = SIZE_MAX);
  // Classes, or numbers in the units of the data.
  explicit Outcomes(const DataSchema& schema);

  // Adds examples: a network's outputs, which are logits [examples, classes] or [examples, labels of each, classes], or
  // normalized numbers [examples, numbers of each]; and their targets, as the data have them. A label that is no class,
  // such as kIgnoredLabel, is not counted.
  void add(const Tensor& outputs, const Tensor& targets);

 private:
  void add_labels(std::span<const double> logits, std::span<const std::int64_t> labels);
  void add_numbers(std::span<const double> values, std::span<const double> targets);

  std::size_t classes_ = 0;  // 0: numbers
  std::vector<double> mean_, stddev_;
};

// The shortest text of number k of an example that is the same normalized f32: 217181, not 217180.997455.
std::string shortest_text(double value, const DataSchema& schema, std::size_t k);
// 1 - squared errors / squared distances from the mean, of the first numbers; NaN if these are all equal.
double r2_score(const std::vector<ExampleOutcome>& examples);

}  // namespace lockstep
