#include "lockstep/backend/cuda/library_status.h"

#include <cuda_runtime_api.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int current_gpu() {
  int gpu = -1;
  return cudaGetDevice(&gpu) == cudaSuccess ? gpu : -1;
}

}  // namespace

void check_cudnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  fail("{} on cuda:{}: {}{}{}", call, current_gpu(), cudnnGetErrorString(status), *detail ? ": " : "", detail);
}

void check_cublas(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail("{} on cuda:{}: {}", call, current_gpu(), cublasLtGetStatusString(status));
}

}  // namespace lockstep
