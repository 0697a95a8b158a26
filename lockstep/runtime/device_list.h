// Lists of devices as users write them: "cpu:0,cpu:1", "cuda:0", "cpu:0,cuda:0/0,cuda:0/1".
#pragma once

#include <string_view>

#include "lockstep/runtime/runtime.h"

namespace LOCKSTEP_API lockstep {

// How many are listed, and the options of a Runtime that has them all (cpu_devices, cuda, cuda_logical; all else as it is by
// default).
struct DeviceList {
  int count = 0;
  RuntimeOptions options;
};

// Throws Error for what cannot be understood. Whether there are such GPUs is for the Runtime to say.
DeviceList parse_device_list(std::string_view list);

// `count` devices of the best kind that there is: GPUs, several logical ones on each if they are fewer; else of the CPU, which
// share the cores. 0: all GPUs, or one CPU device. Ranks of one host (LOCAL_RANK of LOCAL_WORLD_SIZE) divide its GPUs; where
// these are fewer, several ranks have the same one.
DeviceList find_devices(int count = 0);

// The number of GPUs that this process sees: torch.cuda.device_count().
int device_count();
// torch.cuda.is_available()
inline bool cuda_is_available() { return device_count() > 0; }

}  // namespace lockstep
