// Shared by the GPU tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/backend/cuda/cuda_context.h"

namespace lockstep::testing {

// False without a GPU or driver. Tests then skip: `GTEST_SKIP() << kNoGpu`.
bool has_gpu();
inline constexpr const char* kNoGpu = "there is no GPU here";

// A context on a GPU and memory on it, all of which the destructor frees.
class GpuMemory {
 public:
  explicit GpuMemory(int gpu = 0);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  CudaContext& context() { return context_; }
  cudaStream_t stream() { return context_.stream(); }
  // Allocates bytes of 0xff, `offset` bytes after a multiple of 256.
  void* allocate(std::size_t bytes, std::size_t offset = 0);
  void* upload(const void* host, std::size_t bytes, std::size_t offset = 0);
  // Copies after all work queued on the stream. Throws errors that kernels reported.
  void download(void* host, const void* device, std::size_t bytes);
  void synchronize();
  // Frees all blocks.
  void release();

 private:
  std::shared_ptr<CudaStream> stream_;
  CudaContext context_;
  std::vector<void*> blocks_;
};

}  // namespace lockstep::testing
