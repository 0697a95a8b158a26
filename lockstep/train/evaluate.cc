#include "lockstep/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/parallel/split.h"

namespace lockstep {
namespace {

// Rejects other labels, which would be compared with outputs of other samples.
void check_labels(const Tensor& outputs, const Tensor& labels) {
  const int dims = outputs.shape().dim();
  bool fits = dims >= 2 && labels.dtype() == DType::i64 && labels.shape().dim() == dims - 1;
  for (int axis = 2; fits && axis < dims; ++axis) fits = outputs.size(axis) == labels.size(axis - 1);
  check(fits,
        "evaluate: outputs are {}, labels {}, expected [n, classes, ...] and i64 [n, ...] for the accuracy, or other "
        "metrics: TrainerOptions::metrics or evaluate(module, loader, metrics, options)",
        outputs.describe(), labels.describe());
}

// One metric's sums over a batch, which may still be in flight: f64 [1], or a table.
struct BatchTotal {
  Tensor sum;
  Tensor count;  // undefined: all values count
  std::int64_t values = 0;
};

BatchOutputs outputs_of(Module& module, const Example& parts, const EvaluateOptions& options) {
  if (!options.forward) {
    const Tensor& x = parts[0];
    return {.outputs = module.forward(is_floating(x.dtype()) ? x.to(options.dtype) : x), .targets = parts[1]};
  }
  BatchOutputs found = options.forward(parts);
  check(found.outputs.defined(), "evaluate: `forward` returned no outputs, expected what the metrics measure");
  if (!found.targets.defined()) found.targets = parts.back();
  return found;
}

std::vector<BatchTotal> measure(Module& module, const std::vector<Metric>& metrics, std::span<const Tensor> parts,
                                const EvaluateOptions& options) {
  // Runs shard after shard, so a device has the activations of one at a time. Returns values and masks of each metric.
  const auto of_shard = [&](std::span<const Tensor> in) {
    auto [loss, outputs, targets, log, losses] = outputs_of(module, {in.begin(), in.end()}, options);
    if (outputs.dtype() == DType::bf16 || outputs.dtype() == DType::f16) outputs = outputs.to(DType::f32);
    std::vector<Tensor> results;
    for (const Metric& metric : metrics) {
      Tensor values = metric.values(outputs, targets).to(DType::f64);
      check(!metric.table || (values.shape().dim() == 3 && !metric.counted),
            "metric {}: values are {}, expected a table for each sample (n, rows, columns), all of which count",
            metric.name, values.describe());
      if (metric.counted) {
        const Tensor counted = metric.counted(targets);
        check(counted.shape() == values.shape() && is_mask(counted.dtype()),
              "metric {}: `counted` returned {}, expected a mask of the shape of {}", metric.name, counted.describe(),
              values.describe());
        results.push_back(where(counted, values, 0.0));
        results.push_back(counted.to(DType::f64));
      } else {
        results.push_back(std::move(values));
      }
    }
    return results;
  };
  const std::vector<Tensor> results = per_shard(of_shard, parts);
  std::vector<BatchTotal> totals;
  std::size_t next = 0;
  for (const Metric& metric : metrics) {
    const Tensor& values = results[next++];
    totals.push_back({metric.table ? sum(values, 0) : sum(values), metric.counted ? sum(results[next++]) : Tensor(),
                      values.numel()});
  }
  return totals;
}

std::vector<Device> devices_of(Module& module, const EvaluateOptions& options) {
  if (options.devices.empty()) return module.devices();
  module.expect_on(options.devices, "evaluate");
  return options.devices;
}

// An option that another option would override is an error.
void check_options_count(const EvaluateOptions& o) {
  check(!o.distributed || (o.split.shards == 0 && o.split.balance == Balance()),
        "evaluate: split is set beside `distributed`, whose shards count, expected one of them");
  check(!o.distributed || o.devices.empty() || o.devices == o.distributed->devices(),
        "evaluate: devices are set beside `distributed`, which is on others, expected none, or the same");
  check(!o.forward || o.dtype == DType::f32,
        "evaluate: dtype is {} beside `forward`, expected `forward` to cast its inputs, as in batch[0].to(dtype), and "
        "f32",
        name(o.dtype));
}

void add_table(std::vector<std::vector<double>>& table, const Tensor& more) {
  const auto columns = static_cast<std::size_t>(more.size(1));
  const std::vector<double> values = more.to_vector<double>();
  table.resize(static_cast<std::size_t>(more.size(0)), std::vector<double>(columns));
  for (std::size_t i = 0; i < values.size(); ++i) table[i / columns][i % columns] += values[i];
}

}  // namespace

namespace {

// Calls take(label, predicted class) for each label of this process's examples, in the order of the loop. Labels may be
// kIgnoredLabel. `check_batch` gets each batch first.
void for_each_prediction(Module& module, DataLoader& loader, BatchSplitter& splitter, const EvaluateOptions& options,
                         const std::function<void(const Example& batch)>& check_batch,
                         const std::function<void(std::int64_t label, std::int64_t predicted)>& take) {
  NoGradGuard no_grad;
  EvalGuard mode(module);
  struct Predictions {
    Tensor classes, labels;
  };
  // Batches in flight: enough to keep the devices busy while the host counts.
  constexpr std::size_t kInFlight = 4;
  std::deque<Predictions> pending;
  const auto take_first = [&] {
    const Predictions first = std::move(pending.front());
    pending.pop_front();
    std::vector<std::int64_t> predicted;
    for (const Array& shard : first.classes->parts) {
      const std::vector<std::int64_t> more = ops::host_readable(shard).to_vector<std::int64_t>();
      predicted.insert(predicted.end(), more.begin(), more.end());
    }
    check(std::ssize(predicted) == first.labels.numel(),
          "evaluate: {} predictions for labels {}, expected one for each", predicted.size(), first.labels.shape());
    const auto* label = first.labels.data_ptr<const std::int64_t>();
    for (const std::int64_t p : predicted) take(*label++, p);
  };
  std::int64_t number = 0;
  for (Example& batch : loader) {
    const std::int64_t samples = loader.batch_examples(number++);
    check_batch(batch);
    const std::int64_t rows = batch[0].size(0);
    if (rows == 0) continue;  // other ranks have all rows
    const Tensor x = splitter.split(std::span(batch).first(1), options.distributed ? samples : rows)[0];
    // Runs shard after shard, so a device has the activations of one shard at a time.
    const auto classes = [&](const Tensor& shard) {
      const Tensor outputs = module.forward(is_floating(shard.dtype()) ? shard.to(options.dtype) : shard);
      check_labels(outputs, batch[1]);
      return argmax(outputs, 1);
    };
    pending.push_back({per_shard(classes, x), batch[1]});
    if (pending.size() > kInFlight) take_first();
  }
  while (!pending.empty()) take_first();
}

}  // namespace

Accuracy evaluate(Module& module, DataLoader& loader, const EvaluateOptions& options) {
  if (options.forward) {
    const MetricResult found = evaluate(module, loader, {metrics::accuracy()}, options)[0];
    return {std::llround(found.sum), std::llround(found.count)};
  }
  check_options_count(options);
  std::optional<BatchSplitter> own;
  if (!options.distributed) own.emplace(devices_of(module, options), options.split);
  BatchSplitter& splitter = own ? *own : *options.distributed;
  Accuracy accuracy;
  const auto check_batch = [](const Example& batch) {
    check(batch.size() == 2,
          "evaluate: examples have {} parts, expected inputs and labels, or EvaluateOptions::forward", batch.size());
  };
  for_each_prediction(module, loader, splitter, options, check_batch, [&](std::int64_t label, std::int64_t predicted) {
    accuracy.correct += predicted == label;
    accuracy.total += label != kIgnoredLabel;
  });
  Communicator& ranks = splitter.communicator();
  accuracy.correct = ranks.sum_on_host(accuracy.correct, "correct examples of the evaluation");
  accuracy.total = ranks.sum_on_host(accuracy.total, "examples of the evaluation");
  return accuracy;
}

std::vector<Misclassified> misclassified(Module& module, DataLoader& loader, const EvaluateOptions& options) {
  check(options.distributed == nullptr && !options.forward,
        "misclassified: EvaluateOptions::distributed or forward is set, expected one process and the module's outputs");
  BatchSplitter splitter(devices_of(module, options), options.split);
  std::vector<Misclassified> wrong;
  std::int64_t index = 0;
  const auto check_batch = [](const Example& batch) {
    check(batch.size() == 2 && batch[1].shape().dim() == 1,
          "misclassified: examples have {} parts, expected inputs and one label each", batch.size());
  };
  for_each_prediction(module, loader, splitter, options, check_batch, [&](std::int64_t label, std::int64_t predicted) {
    if (predicted != label && label != kIgnoredLabel) wrong.push_back({index, label, predicted});
    ++index;
  });
  return wrong;
}

std::vector<MetricResult> evaluate(Module& module, DataLoader& loader, const std::vector<Metric>& metrics,
                                   const EvaluateOptions& options) {
  NoGradGuard no_grad;
  EvalGuard mode(module);
  std::vector<MetricResult> results;
  for (const Metric& metric : metrics) {
    check(metric.values != nullptr, "metric {}: `values` is not set", metric.name);
    check(std::ranges::find(results, metric.name, &MetricResult::name) == results.end(),
          "metric {}: the name is used twice", metric.name);
    results.push_back({.name = metric.name});
  }
  if (metrics.empty()) return results;
  check_options_count(options);
  std::optional<BatchSplitter> own;
  if (!options.distributed) own.emplace(devices_of(module, options), options.split);
  BatchSplitter& splitter = own ? *own : *options.distributed;
  // Batches in flight: enough to keep the devices busy while the host adds.
  constexpr std::size_t kInFlight = 4;
  std::deque<std::vector<BatchTotal>> pending;
  const auto add_first = [&] {
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      const BatchTotal& total = pending.front()[i];
      if (metrics[i].table) {
        add_table(results[i].table, total.sum);
        continue;
      }
      results[i].sum += total.sum.item<double>();
      results[i].count += total.count.defined() ? total.count.item<double>() : static_cast<double>(total.values);
    }
    pending.pop_front();
  };
  std::int64_t number = 0;
  for (Example& batch : loader) {
    check(options.forward ? !batch.empty() : batch.size() == 2,
          "evaluate: examples have {} parts, expected inputs and targets, or EvaluateOptions::forward", batch.size());
    // A process without rows takes part in the sums, too.
    const std::int64_t samples = loader.batch_examples(number++);
    const std::vector<Tensor> parts = splitter.split(batch, own ? batch[0].size(0) : samples);
    pending.push_back(measure(module, metrics, parts, options));
    if (pending.size() > kInFlight) add_first();
  }
  while (!pending.empty()) add_first();
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    MetricResult& r = results[i];
    if (metrics[i].table) {
      r.value = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const double mean = r.count > 0 ? r.sum / r.count : std::numeric_limits<double>::quiet_NaN();
    r.value = metrics[i].result ? metrics[i].result(mean) : mean;
  }
  return results;
}

}  // namespace lockstep
