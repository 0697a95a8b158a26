// Internal: GPUs as the layers above see them. A build without CUDA finds none and says why.
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
  std::string uuid;  // 32 hexadecimal digits, unique to the GPU
  // The CPUs near the GPU that this process may use; all usable CPUs if unknown.
  std::vector<int> cpus;
};

// A GPU that Lockstep cannot use: "cuda:0 (Tesla T4) has compute capability 7.5, expected at least 8.0".
struct UnusableGpu {
  int index = 0;
  std::string why;
};

struct GpuList {
  std::vector<GpuInfo> gpus;
  std::vector<UnusableGpu> left_out;
  // The reason for the user if `gpus` is empty: "no CUDA-capable device is detected (cudaErrorNoDevice)".
  std::string why_none;
  // True if CUDA failed: the machine may have GPUs, so a caller that prefers GPUs must not fall back to the CPU. False
  // if the machine has no GPU, no driver, or only GPUs that are left out.
  bool failed = false;
};

// Returns the reason instead of throwing if CUDA finds no GPU or fails.
GpuList find_gpus();

// Lets two GPUs read each other's memory. Returns whether they can. Each pair of a group needs its own call: two GPUs
// that a third one can read may be unable to read each other.
bool connect_gpus(int a, int b);

// Makes a stream of a GPU; an urgent stream has priority. With LOCKSTEP_CUDA_SYNC=1 in the environment, recording a
// ticket waits for its work, so that a GPU failure is reported for the task that caused it.
std::shared_ptr<Stream> make_gpu_stream(int gpu, bool urgent);

// Makes a capture of GPU streams; `timed`: with times. Null with LOCKSTEP_CUDA_SYNC=1, which waits for each task.
std::unique_ptr<StreamCapture> make_gpu_capture(bool timed);

// The GPU's memory.
std::shared_ptr<MemorySource> make_gpu_memory(int gpu);
// Pinned (page-locked) host memory, which GPUs access directly. `gpu` is any GPU that the program uses.
std::shared_ptr<MemorySource> make_pinned_memory(int gpu);

}  // namespace lockstep
