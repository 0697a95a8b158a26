// Counts the images that a model classifies correctly, on all devices at once. Each image counts exactly once.
#pragma once

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

}  // namespace lockstep
