#include "lockstep/train/evaluate.h"

#include <cmath>
#include <deque>
#include <optional>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/parallel/split.h"

namespace lockstep {
namespace {

struct Predictions {
  Tensor classes;  // of this process's samples
  Tensor labels;
};

// Other labels would be compared with outputs that are not theirs.
void check_labels(const Tensor& outputs, const Tensor& labels) {
  const int dims = outputs.shape().dim();
  bool fits = dims >= 2 && labels.dtype() == DType::i64 && labels.shape().dim() == dims - 1;
  for (int axis = 2; fits && axis < dims; ++axis) fits = outputs.size(axis) == labels.size(axis - 1);
  check(fits,
        "evaluate: outputs are {}, labels {}, expected [n, classes, ...] and i64 [n, ...] for the accuracy, or other "
        "metrics: TrainerOptions::metrics or evaluate(module, loader, metrics, options)",
        outputs.describe(), labels.describe());
}

// Counts the correct predictions among the labels that are not ignored.
Accuracy count_correct(const Predictions& p) {
  std::int64_t predictions = 0;
  for (const Array& shard : p.classes.parts()) predictions += shard.numel();
  check(predictions == p.labels.numel(), "evaluate: {} predictions for labels {}, expected one for each", predictions,
        p.labels.shape());
  const auto* label = p.labels.view().as<std::int64_t>();
  Accuracy found;
  for (const Array& shard : p.classes.parts()) {
    for (std::int64_t prediction : shard.to_vector<std::int64_t>()) {
      found.correct += prediction == *label;
      found.total += *label != kIgnoredLabel;
      ++label;
    }
  }
  return found;
}

}  // namespace

Accuracy evaluate(Module& module, DataLoader& loader, const EvaluateOptions& options) {
  if (options.forward) {
    const MetricResult found = evaluate(module, loader, {metrics::accuracy()}, options)[0];
    return {std::llround(found.sum), std::llround(found.count)};
  }
  NoGradGuard no_grad;
  EvalGuard mode(module);
  std::optional<BatchSplitter> own;
  if (!options.distributed) own.emplace(options.devices, options.split);
  BatchSplitter& splitter = own ? *own : *options.distributed;
  Accuracy accuracy;
  // Batches in flight: enough to keep the devices busy while the host counts.
  constexpr std::size_t kInFlight = 4;
  std::deque<Predictions> pending;
  auto count_first = [&] {
    const Accuracy found = count_correct(pending.front());
    accuracy.correct += found.correct;
    accuracy.total += found.total;
    pending.pop_front();
  };
  std::int64_t number = 0;
  for (Example& batch : loader) {
    const std::int64_t samples = loader.batch_examples(number++);
    check(batch.size() == 2,
          "evaluate: examples have {} parts, expected inputs and labels, or EvaluateOptions::forward", batch.size());
    const std::int64_t rows = batch[0].size(0);
    if (rows == 0) continue;  // others have all rows
    const Tensor x = splitter.split(std::span(batch).first(1), own ? rows : samples)[0];
    // Shard after shard: a device has the activations of one at a time.
    const auto classes = [&](const Tensor& shard) {
      const Tensor outputs = module.forward(is_floating(shard.dtype()) ? shard.to(options.dtype) : shard);
      check_labels(outputs, batch[1]);
      return argmax(outputs, 1);
    };
    pending.push_back({per_shard(classes, x), batch[1]});
    if (pending.size() > kInFlight) count_first();
  }
  while (!pending.empty()) count_first();
  Communicator& ranks = splitter.communicator();
  accuracy.correct = ranks.sum_on_host(accuracy.correct, "correct examples of the evaluation");
  accuracy.total = ranks.sum_on_host(accuracy.total, "examples of the evaluation");
  return accuracy;
}

std::vector<Misclassified> misclassified(Module& module, DataLoader& loader, const EvaluateOptions& options) {
  check(options.distributed == nullptr && !options.forward,
        "misclassified: EvaluateOptions::distributed or forward is set, expected one process and the module's outputs");
  NoGradGuard no_grad;
  EvalGuard mode(module);
  std::vector<Misclassified> wrong;
  std::int64_t index = 0;
  for (Example& batch : loader) {
    check(batch.size() == 2 && batch[1].shape().dim() == 1,
          "misclassified: examples have {} parts, expected inputs and one label each", batch.size());
    const Tensor x = split_and_load(batch[0], options.devices, options.split);
    const auto classes = [&](const Tensor& shard) {
      const Tensor outputs = module.forward(is_floating(shard.dtype()) ? shard.to(options.dtype) : shard);
      check_labels(outputs, batch[1]);
      return argmax(outputs, 1);
    };
    const auto* label = batch[1].view().as<std::int64_t>();
    const Tensor predictions = per_shard(classes, x);
    for (const Array& shard : predictions.parts()) {
      for (std::int64_t predicted : shard.to_vector<std::int64_t>()) {
        if (predicted != *label && *label != kIgnoredLabel) wrong.push_back({index, *label, predicted});
        ++label;
        ++index;
      }
    }
  }
  return wrong;
}

}  // namespace lockstep
