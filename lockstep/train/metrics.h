// What evaluate() measures: accuracy, top-k accuracy, mean absolute and squared error, perplexity, confusion matrix,
// and metrics of your own.
//
//   const Metric close{.name = "close", .values = [](const Tensor& outputs, const Tensor& targets) {
//     return le(abs(outputs - targets), 0.1);
//   }};
//   evaluate(net, loader, {metrics::mean_absolute_error(), close}, {.devices = devices});
//
// A metric is a mean of values, one or several from each example. Sums and counts are added in f64, in the shards' tree
// and batch after batch, so the result has the same bits on any number of devices and processes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/autograd/losses.h"
#include "lockstep/checkpoint/epoch_report.h"

namespace LOCKSTEP_API lockstep {

struct Metric {
  std::string name;
  // Returns the values to average, of any type, for one shard. Outputs in bf16 or f16 are cast to f32 first. Axis 0 of
  // outputs, targets, and values has the samples.
  std::function<Tensor(const Tensor& outputs, const Tensor& targets)> values;
  // Returns a u8 mask of the values' shape; 0 excludes a value. Empty: all values count.
  std::function<Tensor(const Tensor& targets)> counted{};
  // Computes the metric from the mean of all values. Empty: the mean itself.
  std::function<double(double mean)> result{};
  // True: the values are one table for each sample, [n, rows, columns], and the result is the sum of the tables.
  bool table = false;
  // Whether a smaller value is better, as for a perplexity. WatchOptions, plots, and the log use it.
  bool smaller_is_better = false;
};

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
