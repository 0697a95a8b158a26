#include "lockstep/device/cuda/cuda_status.h"

#include "lockstep/base/error.h"

namespace lockstep {

void check_cuda(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) [[likely]] return;
  cudaGetLastError();  // what can be forgotten is: the next call should not fail for this one
  int gpu = -1;
  if (cudaGetDevice(&gpu) != cudaSuccess) gpu = -1;
  fail("{} on {}: {} ({})", call, gpu < 0 ? "a GPU" : fmt::format("cuda:{}", gpu), cudaGetErrorString(status),
       cudaGetErrorName(status));
}

GpuScope::GpuScope(int gpu) : gpu_(gpu) {
  check_cuda(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ != gpu) check_cuda(cudaSetDevice(gpu), "cudaSetDevice");
}

// Not where nothing changed: the call makes the GPU's context, where there is none yet.
GpuScope::~GpuScope() {
  if (previous_ != gpu_) cudaSetDevice(previous_);
}

}  // namespace lockstep
