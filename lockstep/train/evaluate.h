// Measures a model on all devices at once. Each example counts exactly once. metrics.h has what can be measured.
//
//   Accuracy accuracy = evaluate(net, test_loader);
//   std::vector<MetricResult> results = evaluate(net, loader, {metrics::mean_absolute_error()});
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/epoch_report.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/metrics.h"

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

struct EvaluateOptions {
  // Empty: the devices of the model, which evaluate() places if nobody did.
  std::vector<Device> devices{};
  // An error together with `distributed`, which has a split of its own.
  SplitOptions split{};
  // Floating inputs are cast to this type. Leave it at f32 with `forward`, which casts them itself.
  DType dtype = DType::f32;
  // Set this to share the evaluation among ranks, such as to a DistributedDataParallel: each rank loads its rows
  // (rows_of), and the result covers all ranks. Null: this process evaluates all examples, also in a job.
  BatchSplitter* distributed = nullptr;
  // See TrainerOptions::forward. Empty: examples are {inputs, targets}, and the outputs are the module's.
  BatchFunction forward{};
};

// Without `forward`, the loader's examples are {inputs, labels i64}. The model's outputs are [n, classes] for labels
// [n], or [n, classes, ...] for labels [n, ...], each of which counts unless it is kIgnoredLabel. Anything else is an
// error: use metrics. The model runs in evaluation mode and then returns to its former mode.
Accuracy evaluate(Module& module, DataLoader& loader, const EvaluateOptions& options = {});

struct Misclassified {
  std::int64_t index = 0;  // index of the example in the order of the loop; in the data set, too, unless it is shuffled
  std::int64_t label = 0;
  std::int64_t predicted = 0;
};

// Returns the examples whose largest output is not that of their label, in the order of the loop. Examples are as for
// evaluate(), with one label each; examples labeled kIgnoredLabel are left out. Throws with
// EvaluateOptions::distributed or `forward`.
//
//   for (const Misclassified& m : misclassified(net, test_loader)) show(test_data.get(m.index));
std::vector<Misclassified> misclassified(Module& module, DataLoader& loader, const EvaluateOptions& options = {});

// Returns the metrics over all examples of the loader, in the order of `metrics`. The model runs in evaluation mode and
// then returns to its former mode. Collective if EvaluateOptions::distributed is set.
std::vector<MetricResult> evaluate(Module& module, DataLoader& loader, const std::vector<Metric>& metrics,
                                   const EvaluateOptions& options = {});

}  // namespace lockstep
