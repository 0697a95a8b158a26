// Included before tests that were written for CPU devices, so that they run on GPUs: a runtime gets a logical device of
// GPU 0 for each CPU device that the test requests.
#pragma once

// All headers that mention Runtime, before the name is redefined.
#include "lockstep/parallel/job.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

class RuntimeOnGpu : public Runtime {
 public:
  explicit RuntimeOnGpu(RuntimeOptions options = {}) : Runtime(moved(std::move(options))) {}

 private:
  static RuntimeOptions moved(RuntimeOptions options) {
    options.cuda_logical = options.cpu_devices;
    options.cuda_memory_limit = options.memory_limit;
    options.cpu_devices = 1;
    return options;
  }
};

}  // namespace lockstep

#define Runtime RuntimeOnGpu
