// Checks the status of calls to the CUDA runtime. Errors name the call and the GPU, and explain the status.
#pragma once

#include <cuda_runtime_api.h>

#include <new>
#include <string_view>

namespace lockstep {

// Throws Error unless `status` is success: `cudaMemcpyAsync on cuda:0: an illegal memory access was encountered
// (cudaErrorIllegalAddress)`. It names the calling thread's GPU.
void check_cuda(cudaError_t status, std::string_view call);

// Selects a GPU for the calling thread. The destructor restores the former one, also if a call selected a third GPU
// meanwhile. If the former GPU has no context, the thread stays on the selected GPU, because restoring would create a
// context, which takes a few hundred megabytes. A thread is on GPU 0 until it selects another. Since CUDA 12,
// cudaSetDevice creates a context; most other calls create one on the thread's GPU, whatever their purpose.
class GpuScope {
 public:
  explicit GpuScope(int gpu);
  // For destructors: does not throw if the GPU cannot be selected; later calls then use the thread's former GPU.
  GpuScope(int gpu, std::nothrow_t) noexcept;
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  int previous_ = 0;
};

// Whether this process has a context on a GPU; true if the driver does not tell. Call it in a GpuScope, because the
// call may create a context on the thread's GPU.
bool has_gpu_context(int gpu);

}  // namespace lockstep
