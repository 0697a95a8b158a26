// Included before tests whose ranks are threads with their own Runtimes. Like runtime_on_gpu.h, but every Runtime takes
// the next GPU, so ranks have different ones and NCCL moves their gradients. (With fewer GPUs than ranks, ranks share
// GPUs and exchange gradients in host memory.)
#pragma once

#include <atomic>

// All headers that mention Runtime, before the name is redefined.
#include "lockstep/device/gpu.h"
#include "lockstep/parallel/job.h"
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
