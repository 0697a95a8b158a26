// A model as a function of whole batches: split over devices, run there, gathered on the first.
#pragma once

#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/parallel/split.h"

namespace lockstep {

struct DataParallelOptions {
  // V of the recipe; 0: one for each device.
  int shards = 0;
};

// Wraps a model that was initialized on these devices. There are no clones: the parameters have a replica on each
// device anyway, so training the wrapped model trains the model. Names stay those of the model (no `module.` prefix).
class DataParallel {
 public:
  DataParallel(Module& module, std::vector<Device> devices, DataParallelOptions options = {});

  // x [n, ...], from the host or any device -> the output for all n samples on the first device. An empty batch is an
  // error. Chunks are of size ceil(n / V), so a short batch may leave devices idle.
  Tensor operator()(const Tensor& x);
  // The same without gathering: what a loss wants.
  Batch forward(const Tensor& x);

  Module& module() { return module_; }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  Module& module_;
  std::vector<Device> devices_;
  DataParallelOptions options_;
};

}  // namespace lockstep
