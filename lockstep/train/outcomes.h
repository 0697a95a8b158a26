// Internal: what a model makes of labeled examples, one by one: which classes it confuses, and how wrong it is in each.
// `lockstep eval`, the page of a run, and misclassified() get their answers from here. evaluate() measures means alone,
// on all devices and ranks; both take their outputs from one function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/train/batch_outputs.h"

namespace lockstep {

struct ExampleOutcome {
  // Classification: minus the log-probability of the right class; for a text, its mean over the characters. Regression:
  // the sum of absolute errors.
  double loss = 0;
  bool labeled = false;                     // classification: whether it has a label that counts
  bool finite = true;                       // false: a probability is NaN, or a number not finite
  std::int64_t truth = 0, said = 0;         // classes; for a text, of its last character
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

  // Of labels. Makes no table for more classes than `most_in_table`: its size is their square. 0 classes: as many as
  // the outputs have, without a table.
  explicit Outcomes(std::size_t classes, std::size_t most_in_table = SIZE_MAX);
  // Number k is normalized, in units of stddev[k] around mean[k].
  static Outcomes of_numbers(std::vector<double> mean, std::vector<double> stddev);

  // Adds examples. `outputs` are logits [examples, classes] or [examples, labels of each, classes], or normalized
  // numbers [examples, numbers of each]. `targets` are labels, or numbers normalized alike. As for evaluate(), a label
  // counts unless it is kIgnoredLabel. One that is no class is wrong, and its loss infinite.
  void add(const Tensor& outputs, const Tensor& targets);
  // Calls `forward` with each batch of the loader and adds its outputs and targets, without recording a history.
  // `goes_on`, if set, is called before each batch; false ends the loop.
  void add_all(DataLoader& loader, const BatchFunction& forward, const std::function<bool()>& goes_on = {});

 private:
  void add_labels(std::span<const double> logits, std::span<const std::int64_t> labels);
  void add_numbers(std::span<const double> values, std::span<const double> targets);

  bool of_labels_ = true;
  std::size_t classes_;
  std::vector<double> mean_, stddev_;
};

// The class that a model says: as for argmax(), the first of the largest logits, of which NaN is the largest.
std::int64_t class_of(std::span<const double> logits);
// 1 - squared errors / squared distances of targets from their mean, of number 0; NaN if all targets are equal.
double r2_score(const std::vector<ExampleOutcome>& examples);

}  // namespace lockstep
