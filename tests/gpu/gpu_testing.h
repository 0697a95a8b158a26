// What the tests of GPUs share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/backend/cuda/cuda_context.h"

namespace lockstep::testing {

// False where there is no GPU (or no driver), which is a reason to skip: `GTEST_SKIP() << kNoGpu`.
bool has_gpu();
inline constexpr const char* kNoGpu = "there is no GPU here";

// A context on a GPU and memory on it, all of it given back in the end.
class GpuMemory {
 public:
  explicit GpuMemory(int gpu = 0);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  CudaContext& context() { return context_; }
  cudaStream_t stream() { return context_.stream(); }
  // Bytes of 0xff. `offset` bytes from an address that is a multiple of 256.
  void* allocate(std::size_t bytes, std::size_t offset = 0);
  void* upload(const void* host, std::size_t bytes, std::size_t offset = 0);
  // After all that was queued on the stream. Throws what kernels reported.
  void download(void* host, const void* device, std::size_t bytes);
  void synchronize();
  // Gives all blocks back.
  void release();

 private:
  std::shared_ptr<CudaStream> stream_;
  CudaContext context_;
  std::vector<void*> blocks_;
};

}  // namespace lockstep::testing
