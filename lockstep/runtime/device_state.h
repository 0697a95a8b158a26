// Internal: everything that makes up one device. Tensors keep their device's state alive, so it may outlive its
// Runtime.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/device/device.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/helper_pool.h"
#include "lockstep/runtime/caller_contexts.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/tensor/caching_allocator.h"

namespace lockstep {

// Settings, besides a device's kind, that decide its bits. A recipe names those that differ from the default.
struct KernelSettings {
  bool reference = false;
  bool direct_conv = false;  // CPUs only
  // GPUs only:
  bool tf32 = false;
  std::filesystem::path cuda_algorithms;
};

struct DeviceState : DeviceInfo, std::enable_shared_from_this<DeviceState> {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<RandomState> runtime_random;  // of its Runtime
  // Returns the random state of this thread's draws.
  std::shared_ptr<RandomState> random() const { return RandomState::for_thread(runtime_random); }
  KernelSettings kernels;
  // One per lane. Declared before the allocator, whose destructor waits for the lanes' tasks.
  std::vector<std::unique_ptr<KernelContext>> contexts;
  // Contexts of threads that compute in place of the lanes; see caller_contexts.h.
  CallerContexts caller_contexts;
  // The threads that help the compute lanes; null if RuntimeOptions sets threads_per_shard, with a single core, in the
  // serial engine, and on GPUs. Declared after the contexts, which must outlive it.
  std::unique_ptr<HelperPool> helpers;
  // Independent shards run side by side: shard s on lane s modulo the number of lanes.
  std::vector<LaneId> compute_lanes;
  // Copies from the host, and copies to the host and other devices. They are two lanes because a copy out waits for the
  // computation of its source, and the next batch should not wait for that.
  LaneId copy_in_lane, copy_out_lane;
  // Small urgent work that must not hold up a compute lane while it waits for other devices: batch-norm statistics.
  LaneId urgent_lane;
  // Devices of one memory domain read each other's memory directly; CPU devices also read the host's. -1: none.
  int memory_domain = -1;
  std::unique_ptr<CachingAllocator> allocator;
  // Host memory that the device reads and writes by itself; null if it can use any host memory.
  std::shared_ptr<CachingAllocator> pinned;
  // The CPU device that works for a GPU when the host must see data: when processes exchange it, and when initial
  // values are made, so that they are the same on devices of all kinds. Null for a CPU device.
  std::shared_ptr<DeviceState> host_side;

  // Returns host_side if there is one, otherwise the device itself.
  Device host_visible_device() const { return Device(host_side ? host_side.get() : this); }

  // Returns the kernel context of a lane; null for a lane of another device.
  KernelContext* context(LaneId lane) const {
    const auto place = lane.index - compute_lanes.front().index;
    return place >= 0 && place < static_cast<int>(contexts.size()) ? contexts[static_cast<std::size_t>(place)].get()
                                                                   : nullptr;
  }

  LaneId compute_lane(int shard) const {
    return compute_lanes[static_cast<std::size_t>(shard < 0 ? 0 : shard) % compute_lanes.size()];
  }
};

// Throws if `device` is the host, which has no engine: its operations run at once, see host_compute.h. `what` names the
// operation.
DeviceState& state_of(Device device, std::string_view what);

}  // namespace lockstep
