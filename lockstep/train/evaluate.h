// Measures a model on all devices at once: accuracy, top-k accuracy, mean absolute and squared error, perplexity,
// confusion matrix, and metrics of your own. Each example counts exactly once.
//
//   Accuracy accuracy = evaluate(net, test_loader, {.devices = devices});
//
//   const Metric close{.name = "close", .values = [](const Tensor& outputs, const Tensor& targets) {
//     return le(abs(outputs - targets), 0.1);
//   }};
//   evaluate(net, loader, {metrics::mean_absolute_error(), close}, {.devices = devices});
//
// A metric is a mean of values, one or several from each example. Sums and counts are added in f64, in the shards' tree
// and batch after batch, so the result has the same bits on any number of devices and processes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/autograd/losses.h"
#include "lockstep/checkpoint/epoch_report.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace LOCKSTEP_API lockstep {

// The results of a model for a batch.
struct BatchOutputs {
  // The mean over the samples, such as mse_loss() returns. Evaluation does not use it.
  Tensor loss;
  // Metrics measure this tensor; axis 0 has the samples. If a metric needs several outputs, join them: cat({y, z}, 1).
  Tensor outputs{};
  // Metrics compare the outputs with these. Undefined: the examples' last part.
  Tensor targets{};
};

// `batch` has all parts of the examples: cut over the batch in training, one shard at a time in evaluation. Floating
// inputs are not cast.
using BatchFunction = std::function<BatchOutputs(const Example& batch)>;

struct EvaluateOptions {
  std::vector<Device> devices;
  // Not used with `distributed`.
  SplitOptions split{};
  // Floating inputs are cast to this type.
  DType dtype = DType::f32;
  // Set this to share the evaluation among ranks, such as to a DistributedDataParallel: each rank loads its rows
  // (rows_of), and the result covers all ranks. Null: one process.
  BatchSplitter* distributed = nullptr;
  // Like TrainerOptions::forward. Empty: examples are {inputs, targets}, and the outputs are the module's.
  BatchFunction forward{};
};

// Without `forward`, the loader's examples are {inputs, labels i64}. The model's outputs are [n, classes] for labels
// [n], or [n, classes, ...] for labels [n, ...], each of which counts unless it is kIgnoredLabel. Anything else is an
// error: use metrics. The model runs in evaluation mode and then returns to its former mode.
Accuracy evaluate(Module& module, DataLoader& loader, const EvaluateOptions& options);

struct Misclassified {
  std::int64_t index = 0;  // the place of the example in the loop: its number in the data set, unless it is shuffled
  std::int64_t label = 0;
  std::int64_t predicted = 0;
};

// The examples whose largest output is not that of their label, in the order of the loop. Examples are as for
// evaluate(), with one label each; those labeled kIgnoredLabel are left out. Throws with EvaluateOptions::distributed
// or `forward`.
//
//   for (const Misclassified& m : misclassified(net, test_loader, {.devices = devices})) show(test_data.get(m.index));
std::vector<Misclassified> misclassified(Module& module, DataLoader& loader, const EvaluateOptions& options);

struct Metric {
  std::string name;
  // Returns the values to average, of any type, for one shard. Outputs in bf16 or f16 are cast to f32 first. Axis 0 of
  // outputs, targets, and values has the samples.
  std::function<Tensor(const Tensor& outputs, const Tensor& targets)> values;
  // Returns a u8 mask of the values' shape; 0 excludes a value. Empty: all values count.
  std::function<Tensor(const Tensor& targets)> counted{};
  // Computes the metric from the mean of all values. Empty: the mean itself.
  std::function<double(double mean)> result{};
  // True: the values are one table per sample, [n, rows, columns], and the result is the sum of the tables.
  bool table = false;
  // For WatchOptions: a smaller value is better, as for a perplexity.
  bool smaller_is_better = false;
};

// Returns the metrics over all examples of the loader, in the order of `metrics`. The model runs in evaluation mode and
// then returns to its former mode. Collective if EvaluateOptions::distributed is set.
std::vector<MetricResult> evaluate(Module& module, DataLoader& loader, const std::vector<Metric>& metrics,
                                   const EvaluateOptions& options);

// Finds a result by name. Throws if there is none.
const MetricResult& metric_named(const std::vector<MetricResult>& results, std::string_view name);

namespace metrics {

// Axis `dim` of the outputs has the classes. The targets, i64, have the same shape without that axis: [N, C, ..] and
// [N, ..].
struct ClassOptions {
  int dim = 1;
  // A label that does not count, as in the losses. std::nullopt: all labels count.
  std::optional<std::int64_t> ignore_index = kIgnoredLabel;
};

// "accuracy": the fraction of labels whose output is the largest. If several outputs are equal, the first one counts.
Metric accuracy(const ClassOptions& options = {});
// "top5_accuracy" for k = 5: the fraction of labels whose output is among the k largest. Among equal outputs, the first
// ones count as larger.
Metric top_k_accuracy(std::int64_t k, const ClassOptions& options = {});
// "perplexity": e to the mean cross entropy of logits and labels.
Metric perplexity(const ClassOptions& options = {});
// "confusion_matrix", a table: row i, column j counts the labels i for which output j is the largest.
Metric confusion_matrix(std::int64_t classes, const ClassOptions& options = {});
// "mean_absolute_error" and "mean_squared_error", over all elements.
Metric mean_absolute_error();
Metric mean_squared_error();

}  // namespace metrics
}  // namespace lockstep
