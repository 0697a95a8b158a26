// What a program computes of a batch itself, where a model's call and one loss are not enough: TrainerOptions::forward.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// A term of a loss: the mean over the samples, such as mse_loss() returns, and its weight in the sum.
struct LossTerm {
  std::string name;
  Tensor value;
  double weight = 1;
};

// The results of a model for a batch.
struct BatchOutputs {
  // The mean over the samples, such as mse_loss() returns. Evaluation does not use it.
  Tensor loss;
  // Metrics measure this tensor; axis 0 has the samples. If a metric needs several outputs, join them: cat({y, z}, 1).
  Tensor outputs{};
  // Metrics compare the outputs with these. Undefined: with the last part of the examples.
  Tensor targets{};
  // Scalars to report with the loss, such as its terms: {{"kind", l1}, {"age", l2}}. Reports and the log contain the
  // mean of each over the samples, as for the loss. Trainer expects the same names in each step. Evaluation does not
  // use them.
  std::vector<std::pair<std::string, Tensor>> log{};
  // Terms of the loss, instead of `loss`: {{"kind", l1}, {"age", l2, 0.3}} is the loss l1 + 0.3 l2, and `log` gets both
  // values, without their weights, before its own.
  std::vector<LossTerm> losses{};
};

// `batch` has all parts of the examples. In training each part is cut over the devices; evaluation passes one shard at
// a time. Floating inputs are not cast.
using BatchFunction = std::function<BatchOutputs(const Example& batch)>;

}  // namespace lockstep
