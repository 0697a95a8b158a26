// Checks the status of calls to cuDNN and cuBLASLt. Errors name the call and the GPU, and explain the status.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <string_view>

namespace lockstep {

void check_cudnn(cudnnStatus_t status, std::string_view call);
void check_cublas(cublasStatus_t status, std::string_view call);

}  // namespace lockstep
