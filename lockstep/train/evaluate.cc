#include "lockstep/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <type_traits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/shards.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/train/outcomes.h"

namespace lockstep {
namespace {

// Returns outputs and targets of one shard. Casts floating inputs to EvaluateOptions::dtype unless `forward` does.
BatchOutputs batch_outputs(Module& module, const Example& batch, const EvaluateOptions& options) {
  BatchOutputs found;
  if (options.forward) {
    found = options.forward(batch);
    check(found.outputs.defined(), "evaluate: `forward` returned no outputs, expected what the metrics measure");
    if (!found.targets.defined()) found.targets = batch.back();
  } else {
    const Tensor& x = batch.at(0);
    found = {.outputs = module.forward(is_floating(x.dtype()) ? x.to(options.dtype) : x), .targets = batch.at(1)};
  }
  if (is_half_dtype(found.outputs.dtype())) found.outputs = found.outputs.to(DType::f32);
  return found;
}

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

std::vector<BatchTotal> measure(Module& module, const std::vector<Metric>& metrics, std::span<const Tensor> parts,
                                const EvaluateOptions& options) {
  // Runs shard after shard, so a device has the activations of one at a time. Returns values and masks of each metric.
  const auto of_shard = [&](std::span<const Tensor> in) {
    const auto [loss, outputs, targets, log, losses] = batch_outputs(module, {in.begin(), in.end()}, options);
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

// Cuts batches over the devices of the model, or of `distributed` and its ranks.
class BatchCutter {
 public:
  BatchCutter(Module& module, const EvaluateOptions& options) : given_(options.distributed) {
    check_options_count(options);
    if (!given_) own_.emplace(devices_of(module, options), options.split);
  }
  BatchSplitter& splitter() { return given_ ? *given_ : *own_; }
  // `samples` is the size of the batch over all ranks.
  std::vector<Tensor> cut(std::span<const Tensor> parts, std::int64_t samples) {
    return splitter().split(parts, given_ ? samples : parts[0].size(0));
  }

 private:
  BatchSplitter* given_;
  std::optional<BatchSplitter> own_;
};

// Calls describe(batch, its size over all ranks) for each batch, and take() for each result, a few batches later.
template <typename Describe, typename Take>
void for_each_batch(DataLoader& loader, const Describe& describe, const Take& take) {
  // Batches in flight: enough to keep the devices busy while the host adds.
  constexpr std::size_t kInFlight = 4;
  std::deque<std::invoke_result_t<Describe, const Example&, std::int64_t>> pending;
  std::int64_t number = 0;
  for (const Example& batch : loader) {
    pending.push_back(describe(batch, loader.batch_examples(number++)));
    if (pending.size() <= kInFlight) continue;
    take(pending.front());
    pending.pop_front();
  }
  for (const auto& last : pending) take(last);
}

void add_table(std::vector<std::vector<double>>& table, const Tensor& more) {
  const auto columns = static_cast<std::size_t>(more.size(1));
  const std::vector<double> values = more.to_vector<double>();
  table.resize(static_cast<std::size_t>(more.size(0)), std::vector<double>(columns));
  for (std::size_t i = 0; i < values.size(); ++i) table[i / columns][i % columns] += values[i];
}

}  // namespace

Accuracy evaluate(Module& module, DataLoader& loader, const EvaluateOptions& options) {
  if (options.forward) {
    const MetricResult found = evaluate(module, loader, {metrics::accuracy()}, options)[0];
    return {std::llround(found.sum), std::llround(found.count)};
  }
  const NoGradGuard no_grad;
  const EvalGuard mode(module);
  BatchCutter cutter(module, options);
  struct Predictions {
    Tensor classes, labels;
  };
  const auto predict = [&](const Example& batch, std::int64_t samples) -> Predictions {
    check(batch.size() == 2,
          "evaluate: examples have {} parts, expected inputs and labels, or EvaluateOptions::forward", batch.size());
    if (batch[0].size(0) == 0) return {};  // other ranks have all rows
    const auto classes = [&](const Tensor& shard) {
      const Tensor outputs = batch_outputs(module, {shard, batch[1]}, options).outputs;
      check_labels(outputs, batch[1]);
      return argmax(outputs, 1);
    };
    return {per_shard(classes, cutter.cut(std::span(batch).first(1), samples)[0]), batch[1]};
  };
  // Counts on each rank, so that ranks exchange numbers only once.
  Accuracy accuracy;
  const auto count = [&](const Predictions& of_batch) {
    if (!of_batch.classes.defined()) return;
    std::vector<std::int64_t> predicted;
    for (const Array& shard : of_batch.classes->parts) {
      const std::vector<std::int64_t> more = ops::host_readable(shard).to_vector<std::int64_t>();
      predicted.insert(predicted.end(), more.begin(), more.end());
    }
    check(std::ssize(predicted) == of_batch.labels.numel(),
          "evaluate: {} predictions for labels {}, expected one for each", predicted.size(), of_batch.labels.shape());
    const auto* label = of_batch.labels.data_ptr<const std::int64_t>();
    for (const std::int64_t p : predicted) {
      accuracy.correct += p == *label;
      accuracy.total += *label++ != kIgnoredLabel;
    }
  };
  for_each_batch(loader, predict, count);
  Communicator& ranks = cutter.splitter().communicator();
  accuracy.correct = ranks.sum_on_host(accuracy.correct, "correct examples of the evaluation");
  accuracy.total = ranks.sum_on_host(accuracy.total, "examples of the evaluation");
  return accuracy;
}

std::vector<Misclassified> misclassified(Module& module, DataLoader& loader, const EvaluateOptions& options) {
  check(options.distributed == nullptr && !options.forward,
        "misclassified: EvaluateOptions::distributed or forward is set, expected one process and the module's outputs");
  EvaluateOptions placed = options;
  placed.devices = devices_of(module, options);
  const EvalGuard mode(module);
  Outcomes outcomes(0);
  outcomes.add_all(loader, [&](const Example& batch) {
    check(batch.size() == 2 && batch[1].shape().dim() == 1,
          "misclassified: examples have {} parts, expected inputs and one label each", batch.size());
    BatchOutputs found = evaluate_batch(module, batch, placed);
    check_labels(found.outputs, found.targets);
    return found;
  });
  std::vector<Misclassified> wrong;
  for (std::int64_t i = 0; i < std::ssize(outcomes.examples); ++i) {
    const ExampleOutcome& e = outcomes.examples[static_cast<std::size_t>(i)];
    if (e.labeled && e.said != e.truth) wrong.push_back({i, e.truth, e.said});
  }
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
  BatchCutter cutter(module, options);
  const auto totals_of = [&](const Example& batch, std::int64_t samples) {
    check(options.forward ? !batch.empty() : batch.size() == 2,
          "evaluate: examples have {} parts, expected inputs and targets, or EvaluateOptions::forward", batch.size());
    // A process without rows takes part in the sums, too.
    return measure(module, metrics, cutter.cut(batch, samples), options);
  };
  const auto add = [&](const std::vector<BatchTotal>& totals) {
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      const BatchTotal& total = totals[i];
      if (metrics[i].table) {
        add_table(results[i].table, total.sum);
        continue;
      }
      results[i].sum += total.sum.item<double>();
      results[i].count += total.count.defined() ? total.count.item<double>() : static_cast<double>(total.values);
    }
  };
  for_each_batch(loader, totals_of, add);
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

BatchOutputs evaluate_batch(Module& module, const Example& batch, const EvaluateOptions& options) {
  std::vector<Tensor> parts;
  for (const Tensor& part : batch) parts.push_back(split_and_load(part, options.devices, options.split));
  const std::vector<Tensor> found = per_shard(
      [&](std::span<const Tensor> shard) {
        BatchOutputs of_shard = batch_outputs(module, {shard.begin(), shard.end()}, options);
        return std::vector{std::move(of_shard.outputs), std::move(of_shard.targets)};
      },
      parts);
  return {.outputs = gather(found[0], kHost), .targets = gather(found[1], kHost)};
}

}  // namespace lockstep
