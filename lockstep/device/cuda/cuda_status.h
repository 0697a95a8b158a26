// Calls of the CUDA runtime, with errors that name the call, the GPU and the meaning.
#pragma once

#include <cuda_runtime_api.h>

#include <new>
#include <string_view>

namespace lockstep {

// Throws Error unless `status` is success: `cudaMemcpyAsync on cuda:0: an illegal memory access was encountered
// (cudaErrorIllegalAddress)`. The GPU named is the calling thread's.
void check_cuda(cudaError_t status, std::string_view call);

// Makes a GPU the calling thread's for as long as it lives, and goes back then: unless the GPU before has no context, which
// going back would make, with some hundred megabytes. A thread is at GPU 0 until it goes elsewhere, and since CUDA 12
// cudaSetDevice makes the context; so do most other calls, of the thread's GPU, whatever they are about.
class GpuScope {
 public:
  explicit GpuScope(int gpu);
  // For destructors: the calls that follow are made even if the GPU cannot be chosen.
  GpuScope(int gpu, std::nothrow_t) noexcept;
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  const int gpu_;
  int previous_ = 0;
};

// Whether this process has a context on a GPU; true if the driver does not tell. To be asked in a GpuScope, as the question
// may make one on the thread's GPU.
bool has_gpu_context(int gpu);

}  // namespace lockstep
