#include "lockstep/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/autograd/functions.h"

namespace lockstep {

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

// Replaces labels that do not count with class 0.
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
    // NaN counts as larger than every other value.
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
    // [n, positions]: a sample has one label, or one at each of its positions.
    const auto places = [](const Tensor& t) { return t.shape().dim() == 1 ? unsqueeze(t, 1) : flatten(t, 1); };
    Tensor counts = one_hot(places(known_labels(labels, options)), classes).to(DType::f32);
    if (options.ignore_index) {
      const Tensor known = ne(places(labels), static_cast<double>(*options.ignore_index));
      counts = counts * unsqueeze(known.to(DType::f32), 2);
    }
    const Tensor found = one_hot(places(argmax(outputs, axis)), classes).to(DType::f32);
    // Counts are whole numbers, exact in f32 up to 2^24 positions of a sample.
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
