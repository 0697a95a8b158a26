// Lists of devices as users write them: "cpu:0,cpu:1", "cuda:0", "cpu:0,cuda:0/0,cuda:0/1".
#pragma once

#include <string_view>

#include "lockstep/runtime/runtime.h"

namespace LOCKSTEP_API lockstep {

// The number of devices in the list, and the options of a Runtime that has them all: cpu_devices, cuda, and
// cuda_logical; the rest have their defaults.
struct DeviceList {
  int count = 0;
  RuntimeOptions options;
};

// Throws Error if the list cannot be parsed. The Runtime checks whether the GPUs exist.
DeviceList parse_device_list(std::string_view list);

// Returns `count` devices of the best available kind: GPUs, with several logical devices on each if there are fewer
// GPUs; otherwise CPU devices, which share the cores. 0: all GPUs, or one CPU device. The ranks of one host (LOCAL_RANK
// of LOCAL_WORLD_SIZE) divide its GPUs; if there are fewer GPUs than ranks, several ranks get the same one.
DeviceList find_devices(int count = 0);

// The number of GPUs that this process sees: torch.cuda.device_count().
int device_count();
// torch.cuda.is_available()
inline bool cuda_is_available() { return device_count() > 0; }

}  // namespace lockstep
