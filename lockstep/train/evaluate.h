// How many images a model gets right: on all devices at once, each image counted exactly once.
#pragma once

#include <vector>

#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {

struct EvaluateOptions {
  std::vector<Device> devices;
  // V of the recipe; 0: one for each device.
  int shards = 0;
  // Type of the heavy operations.
  DType dtype = DType::f32;
  // The ranks that share the work: the loader loads this rank's rows (rows_of), what is returned counts those of all.
  // Null: there is but this process.
  DistributedDataParallel* distributed = nullptr;
};

struct Accuracy {
  std::int64_t correct = 0;
  std::int64_t total = 0;
  double value() const { return total == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(total); }
};

// Examples of the loader are {inputs, labels i64}; the model's outputs are [n, classes]. In evaluation mode; the model's
// own mode is put back.
Accuracy evaluate(Module& module, DataLoader& loader, const EvaluateOptions& options);

}  // namespace lockstep
