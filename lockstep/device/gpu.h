// GPUs, as far as layers above need to know them. A build without CUDA finds none, and says so.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/device/memory.h"
#include "lockstep/device/stream.h"

namespace lockstep {

struct GpuInfo {
  int index = 0;
  std::string model;  // "NVIDIA H200"
  std::size_t memory_bytes = 0;
  std::string uuid;  // 32 hexadecimal digits, as no other GPU has them
  // Of the CPUs that this process may use, those near to it; all of them where that is not known.
  std::vector<int> cpus;
};

struct GpuList {
  std::vector<GpuInfo> gpus;
  // For the user, where there are none: "CUDA driver version is insufficient for CUDA runtime version".
  std::string why_none;
};

// Never throws: a machine without GPUs or driver is as good as any.
GpuList find_gpus();

// Whether two GPUs can read each other's memory, which this sets up.
bool connect_gpus(int a, int b);

// A stream of a GPU; work of an urgent one goes before that of others. With LOCKSTEP_CUDA_SYNC=1 in the environment each
// ticket is waited for as soon as it is recorded, so that a failure of the GPU is told of the very task that caused it.
std::shared_ptr<Stream> make_gpu_stream(int gpu, bool urgent);

// Of GPUs' streams; `timed`: with times. Null with LOCKSTEP_CUDA_SYNC=1, when tasks are to be waited for one by one.
std::unique_ptr<StreamCapture> make_gpu_capture(bool timed);

// The GPU's memory.
std::shared_ptr<MemorySource> make_gpu_memory(int gpu);
// Host memory that GPUs read and write by themselves, while the host does other things: page-locked. `gpu` is one that is
// used anyway.
std::shared_ptr<MemorySource> make_pinned_memory(int gpu);

}  // namespace lockstep
