#include "lockstep/device/cuda/cuda_status.h"

#include <cuda.h>

#include "lockstep/base/error.h"

namespace lockstep {

void check_cuda(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears a recoverable error, so that the next call does not report it again
  int gpu = -1;
  if (cudaGetDevice(&gpu) != cudaSuccess) gpu = -1;
  fail("{} on {}: {} ({})", call, gpu < 0 ? "a GPU" : fmt::format("cuda:{}", gpu), cudaGetErrorString(status),
       cudaGetErrorName(status));
}

GpuScope::GpuScope(int gpu) {
  check_cuda(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ != gpu) check_cuda(cudaSetDevice(gpu), "cudaSetDevice");
}

GpuScope::GpuScope(int gpu, std::nothrow_t) noexcept {
  if (cudaGetDevice(&previous_) != cudaSuccess) previous_ = gpu;
  if (previous_ != gpu && cudaSetDevice(gpu) != cudaSuccess) cudaGetLastError();
}

GpuScope::~GpuScope() {
  int current = previous_;
  if (cudaGetDevice(&current) != cudaSuccess) cudaGetLastError();
  if (previous_ != current && has_gpu_context(previous_)) cudaSetDevice(previous_);
}

// Only the driver API can tell, not the runtime API.
bool has_gpu_context(int gpu) {
  static const auto get_state = [] {
    void* function = nullptr;
    constexpr unsigned kSince = 7000;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, kSince, cudaEnableDefault, nullptr);
    if (status != cudaSuccess) cudaGetLastError();
    return reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(status == cudaSuccess ? function : nullptr);
  }();
  unsigned flags = 0;
  int active = 1;
  if (get_state != nullptr) get_state(gpu, &flags, &active);
  return active != 0;
}

}  // namespace lockstep
