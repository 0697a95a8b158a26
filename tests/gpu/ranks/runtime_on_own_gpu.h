// Included in front of tests whose ranks are threads with a Runtime of their own each: as runtime_on_gpu.h, but every
// Runtime takes the next GPU, so that ranks have different ones and NCCL moves their gradients. (With fewer GPUs than ranks
// they share, and meet in host memory.)
#pragma once

#include <atomic>

// All that speak of a Runtime, before the name means another.
#include "lockstep/device/gpu.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

class RuntimeOnOwnGpu : public Runtime {
 public:
  explicit RuntimeOnOwnGpu(RuntimeOptions options = {}) : Runtime(moved(std::move(options))) {}

 private:
  static RuntimeOptions moved(RuntimeOptions options) {
    static std::atomic<std::size_t> next{0};
    static const std::size_t gpus = find_gpus().gpus.size();
    options.cuda = {static_cast<int>(next++ % gpus)};
    options.cuda_logical = options.cpu_devices == 1 ? 0 : options.cpu_devices;
    options.cuda_memory_limit = options.memory_limit;
    options.cpu_devices = 1;
    return options;
  }
};

}  // namespace lockstep

#define Runtime RuntimeOnOwnGpu
