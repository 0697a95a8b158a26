// Calls of the CUDA runtime, with errors that name the call, the GPU and the meaning.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace lockstep {

// Throws Error unless `status` is success: `cudaMemcpyAsync on cuda:0: an illegal memory access was encountered
// (cudaErrorIllegalAddress)`. The GPU named is the calling thread's.
void check_cuda(cudaError_t status, std::string_view call);

// Makes a GPU the calling thread's for as long as it lives.
class GpuScope {
 public:
  explicit GpuScope(int gpu);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  const int gpu_;
  int previous_ = 0;
};

}  // namespace lockstep
