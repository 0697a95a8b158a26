// Included in front of tests that were written for CPU devices, so that they run on GPUs: their runtimes have as many
// logical devices of GPU 0 as they ask CPU devices for.
#pragma once

// All that speak of a Runtime, before the name means another.
#include "lockstep/parallel/communicator.h"
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
