// Internal: how a Runtime makes its devices.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/device/gpu.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/runtime/shared_host_memory.h"
#include "lockstep/tensor/caching_allocator.h"

namespace lockstep {

// Parts that all devices of a Runtime share.
struct DeviceParts {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<RandomState> random;
  const RuntimeOptions& options;
  // Not set: all cores of a device compute, however many shards there are, and kernels whose bits depend on T use 1.
  std::optional<int> threads_per_shard;
  // CPUs on which no device computes.
  std::vector<int> copy_cpus;
  // Shared by the CPU devices.
  std::shared_ptr<SharedHostMemory> host_memory;
};

std::shared_ptr<DeviceState> make_cpu_device(const DeviceParts& parts, int index, std::vector<int> cpus,
                                             std::shared_ptr<Backend> backend);

// Makes one GPU's devices: "cuda:0", or the logical devices "cuda:0/0", "cuda:0/1", and so on.
std::vector<std::shared_ptr<DeviceState>> make_gpu_devices(const DeviceParts& parts, const GpuInfo& gpu,
                                                           int memory_domain, std::shared_ptr<Backend> backend,
                                                           std::shared_ptr<CachingAllocator> pinned,
                                                           std::shared_ptr<DeviceState> host_side);

}  // namespace lockstep
