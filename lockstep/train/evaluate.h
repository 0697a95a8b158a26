// Measures a model on all devices at once: accuracy, top-k accuracy, mean absolute and squared error, perplexity,
// confusion matrix, and a user's own metrics. Each example counts exactly once.
//
//   const Metric close{.name = "close", .values = [](const Tensor& outputs, const Tensor& targets) {
//     return le(abs(outputs - targets), 0.1);
//   }};
//   evaluate(net, loader, {metrics::mean_absolute_error(), close}, {.devices = devices});
//
// A metric is the mean of values that every example contributes to. Sums and counts are added as losses are, in the
// shards' tree and batch after batch, in f64: the result has the same bits on any number of devices and processes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace LOCKSTEP_API lockstep {

struct EvaluateOptions {
  std::vector<Device> devices;
  // V of the recipe; 0: one for each device.
  int shards = 0;
  // As in SplitOptions.
  std::vector<double> balance{};
  // The type of the heavy operations.
  DType dtype = DType::f32;
  // The ranks that share the work. The loader loads this rank's rows (rows_of); the result counts the rows of all
  // ranks. Null: this process is alone.
  DistributedDataParallel* distributed = nullptr;
};

struct Accuracy {
  std::int64_t correct = 0;
  std::int64_t total = 0;
  double value() const { return total == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(total); }
};

// The loader's examples are {inputs, labels i64}, and the model's outputs are [n, classes]. The model computes in
// evaluation mode, and has its own mode again afterwards.
Accuracy evaluate(Module& module, DataLoader& loader, const EvaluateOptions& options);

struct Metric {
  std::string name;
  // Makes the values to average, of any type, of one shard's outputs (f32 where the model computes in a half type)
  // and targets. The samples are on axis 0 of all three.
  std::function<Tensor(const Tensor& outputs, const Tensor& targets)> values;
  // u8 of the values' shape: those at 0 count nothing. Empty: all count.
  std::function<Tensor(const Tensor& targets)> counted{};
  // The metric from the mean of all values. Empty: the mean.
  std::function<double(double mean)> result{};
  // The values are a table for each sample, [n, rows, columns], and the result is the sum of them.
  bool table = false;
};

struct MetricResult {
  std::string name;
  double sum = 0;                            // of the values
  double count = 0;                          // of the values
  double value = 0;                          // NaN without any values, and of a table
  std::vector<std::vector<double>> table{};  // of a metric that is one; 0 rows without any samples
};

// Metrics of all the loader's examples, {inputs, targets}, in the order of `metrics`. The model computes in evaluation
// mode, and has its own mode again afterwards. Every process has to call it.
std::vector<MetricResult> evaluate(Module& module, DataLoader& loader, const std::vector<Metric>& metrics,
                                   const EvaluateOptions& options);

// The result of a metric. Throws if there is none of that name.
const MetricResult& metric_named(const std::vector<MetricResult>& results, std::string_view name);

namespace metrics {

// Outputs have classes on an axis `dim`, which the targets, i64, lack: [N, C, ..] and [N, ..], say.
struct ClassOptions {
  int dim = 1;
  // A label that does not count.
  std::optional<std::int64_t> ignore_index = {};
};

// "accuracy": the largest output is the label's; the first of equal ones counts.
Metric accuracy(const ClassOptions& options = {});
// "top5_accuracy" for k = 5: fewer than k outputs are larger than the label's, or equal and before it.
Metric top_k_accuracy(std::int64_t k, const ClassOptions& options = {});
// "perplexity": e to the mean cross entropy of logits and labels.
Metric perplexity(const ClassOptions& options = {});
// "confusion_matrix", a table of counts: row i, column j has the labels i for which output j is the largest.
Metric confusion_matrix(std::int64_t classes, const ClassOptions& options = {});
// "mean_absolute_error" and "mean_squared_error", over all elements.
Metric mean_absolute_error();
Metric mean_squared_error();

}  // namespace metrics
}  // namespace lockstep
