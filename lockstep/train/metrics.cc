#include "lockstep/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/parallel/split.h"

namespace lockstep {
namespace {

// One metric's sums over a batch, not waited for: f64 [1], or a table.
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
  // Shard after shard: a device has the activations of one at a time. Each metric gives values, and those to count.
  const auto of_shard = [&](std::span<const Tensor> in) {
    auto [loss, outputs, targets] = outputs_of(module, {in.begin(), in.end()}, options);
    if (outputs.dtype() == DType::bf16 || outputs.dtype() == DType::f16) outputs = outputs.to(DType::f32);
    std::vector<Tensor> results;
    for (const Metric& metric : metrics) {
      Tensor values = metric.values(outputs, targets).to(DType::f64);
      check(!metric.table || (values.shape().dim() == 3 && !metric.counted),
            "metric {}: values are {}, expected a table for each sample (n, rows, columns), all of which count",
            metric.name, values.describe());
      if (metric.counted) {
        const Tensor counted = metric.counted(targets);
        check(counted.shape() == values.shape() && counted.dtype() == DType::u8,
              "metric {}: `counted` returned {}, expected a u8 mask of the shape of {}", metric.name,
              counted.describe(), values.describe());
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

void add_table(std::vector<std::vector<double>>& table, const Tensor& more) {
  const auto columns = static_cast<std::size_t>(more.size(1));
  const std::vector<double> values = more.to_vector<double>();
  table.resize(static_cast<std::size_t>(more.size(0)), std::vector<double>(columns));
  for (std::size_t i = 0; i < values.size(); ++i) table[i / columns][i % columns] += values[i];
}

}  // namespace

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
  std::optional<BatchSplitter> own;
  if (!options.distributed) own.emplace(options.devices, options.split);
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

const MetricResult& metric_named(const std::vector<MetricResult>& results, std::string_view name) {
  const auto found = std::ranges::find(results, name, &MetricResult::name);
  std::string names;
  for (const MetricResult& r : results) names += (names.empty() ? "" : ", ") + r.name;
  check(found != results.end(), "metric {}: not measured, expected one of [{}]", name, names);
  return *found;
}

namespace metrics {
namespace {

int class_axis(std::string_view name, const Tensor& outputs, const Tensor& labels, int dim) {
  const int dims = outputs.shape().dim(), axis = dim < 0 ? dim + dims : dim;
  check(axis > 0 && axis < dims && labels.dtype() == DType::i64 && labels.shape().dim() == dims - 1,
        "{}: outputs are {}, targets {}, expected classes on axis {} and labels (i64) without that axis", name,
        outputs.describe(), labels.describe(), dim);
  return axis;
}

std::function<Tensor(const Tensor&)> not_ignored(const ClassOptions& options) {
  if (!options.ignore_index) return nullptr;
  return [index = *options.ignore_index](const Tensor& labels) { return ne(labels, static_cast<double>(index)); };
}

// Replaces labels that do not count by an existing class.
Tensor known_labels(const Tensor& labels, const ClassOptions& options) {
  if (!options.ignore_index) return labels;
  return masked_fill(labels, eq(labels, static_cast<double>(*options.ignore_index)), 0);
}

}  // namespace

Metric accuracy(const ClassOptions& options) {
  const auto values = [options](const Tensor& outputs, const Tensor& labels) {
    return eq(argmax(outputs, class_axis("accuracy", outputs, labels, options.dim)), labels);
  };
  return {.name = "accuracy", .values = values, .counted = not_ignored(options)};
}

Metric top_k_accuracy(std::int64_t k, const ClassOptions& options) {
  const std::string name = fmt::format("top{}_accuracy", k);
  check(k > 0, "top_k_accuracy: k is {}, expected at least 1", k);
  const auto values = [=](const Tensor& outputs, const Tensor& all_labels) {
    const int axis = class_axis(name, outputs, all_labels, options.dim);
    check(k <= outputs.size(axis), "{}: the outputs have {} classes, expected at least {}", name, outputs.size(axis),
          k);
    const Tensor labels = unsqueeze(known_labels(all_labels, options), axis);
    const Tensor own = take_along_dim(outputs, labels, axis);
    const Tensor numbers = cumsum(ones_like(outputs), axis) - 1;
    // NaN is ahead of everything else.
    const Tensor ahead = where(le(outputs, own), 0.0, ones_like(outputs));
    const Tensor before = where(lt(numbers, labels.to(outputs.dtype())), ones_like(outputs), 0.0);
    const Tensor tied = where(eq(outputs, own), before, 0.0);
    return lt(sum(ahead + tied, axis), static_cast<double>(k));
  };
  return {.name = name, .values = values, .counted = not_ignored(options)};
}

Metric perplexity(const ClassOptions& options) {
  const auto values = [options](const Tensor& outputs, const Tensor& labels) {
    const int axis = class_axis("perplexity", outputs, labels, options.dim);
    const Tensor own = take_along_dim(log_softmax(outputs, axis), unsqueeze(known_labels(labels, options), axis), axis);
    return -squeeze(own, axis);
  };
  return {.name = "perplexity",
          .values = values,
          .counted = not_ignored(options),
          .result = [](double mean) { return std::exp(mean); },
          .smaller_is_better = true};
}

Metric confusion_matrix(std::int64_t classes, const ClassOptions& options) {
  check(classes > 0, "confusion_matrix: {} classes, expected at least 1", classes);
  const auto values = [=](const Tensor& outputs, const Tensor& labels) {
    const int axis = class_axis("confusion_matrix", outputs, labels, options.dim);
    check(outputs.size(axis) == classes, "confusion_matrix: outputs are {}, expected {} classes on axis {}",
          outputs.describe(), classes, options.dim);
    // [n, places]: a sample has one label, or one at each of its places.
    const auto places = [](const Tensor& t) { return t.shape().dim() == 1 ? unsqueeze(t, 1) : flatten(t, 1); };
    Tensor counts = one_hot(places(known_labels(labels, options)), classes).to(DType::f32);
    if (options.ignore_index) {
      const Tensor known = ne(places(labels), static_cast<double>(*options.ignore_index));
      counts = counts * unsqueeze(known.to(DType::f32), 2);
    }
    const Tensor found = one_hot(places(argmax(outputs, axis)), classes).to(DType::f32);
    // Whole numbers, exact in f32 up to 2^24 places of a sample.
    return matmul(transpose(counts, 1, 2), found);
  };
  return {.name = "confusion_matrix", .values = values, .table = true};
}

Metric mean_absolute_error() {
  const auto values = [](const Tensor& outputs, const Tensor& targets) {
    return l1_loss(outputs, targets, {.reduction = Reduction::none});
  };
  return {.name = "mean_absolute_error", .values = values, .smaller_is_better = true};
}

Metric mean_squared_error() {
  const auto values = [](const Tensor& outputs, const Tensor& targets) {
    return mse_loss(outputs, targets, {.reduction = Reduction::none});
  };
  return {.name = "mean_squared_error", .values = values, .smaller_is_better = true};
}

}  // namespace metrics
}  // namespace lockstep
