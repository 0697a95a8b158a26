// Measures a model on all devices at once. Each example counts exactly once. metrics.h has what can be measured.
//
//   Accuracy accuracy = evaluate(net, test_loader);
//   std::vector<MetricResult> results = evaluate(net, loader, {metrics::mean_absolute_error()});
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/checkpoint/epoch_report.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/batch_outputs.h"
#include "lockstep/train/metrics.h"

namespace LOCKSTEP_API lockstep {

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

// Internal: what the model computes of a batch, before anything is measured: outputs and targets in host memory, f32
// instead of bf16 and f16. The batch is cut over `devices`, on which the model must be, in its evaluation mode; shard
// follows shard, so a device has the activations of one at a time.
BatchOutputs evaluate_batch(Module& module, const Example& batch, const EvaluateOptions& options);

}  // namespace lockstep
