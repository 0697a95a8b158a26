#include "lockstep/backend/cuda/cuda_context.h"

#include <cublasLt.h>
#include <cudnn.h>

#include "lockstep/backend/cuda/library_status.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {

CudaContext::CudaContext(std::shared_ptr<CudaStream> stream) : stream_(std::move(stream)) {}

CudaContext::~CudaContext() {
  cudaStreamSynchronize(stream_->handle());
  if (cudnn_) cudnnDestroy(cudnn_);
  if (cublas_) cublasLtDestroy(cublas_);
  cudaFree(scratch_);
  cudaFree(counters_);
}

cudnnContext* CudaContext::cudnn() {
  if (!cudnn_) {
    GpuScope scope(gpu());
    check_cudnn(cudnnCreate(&cudnn_), "cudnnCreate");
    check_cudnn(cudnnSetStream(cudnn_, stream()), "cudnnSetStream");
  }
  return cudnn_;
}

cublasLtContext* CudaContext::cublas() {
  if (!cublas_) {
    GpuScope scope(gpu());
    check_cublas(cublasLtCreate(&cublas_), "cublasLtCreate");
  }
  return cublas_;
}

void* CudaContext::device_scratch(std::size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  GpuScope scope(gpu());
  // What was given out before may be in use until here.
  check_cuda(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  check_cuda(cudaFree(scratch_), "cudaFree");
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  check_cuda(cudaMalloc(&scratch_, bytes), "cudaMalloc");
  scratch_bytes_ = bytes;
  return scratch_;
}

CudaContext& cuda_context(KernelContext& context) {
  auto& cuda = static_cast<CudaContext&>(context);
  check_cuda(cudaSetDevice(cuda.gpu()), "cudaSetDevice");
  return cuda;
}

unsigned* CudaContext::counters() {
  if (!counters_) {
    GpuScope scope(gpu());
    void* counters = nullptr;
    check_cuda(cudaMalloc(&counters, kCounters * sizeof(unsigned)), "cudaMalloc");
    counters_ = static_cast<unsigned*>(counters);
    check_cuda(cudaMemsetAsync(counters_, 0, kCounters * sizeof(unsigned), stream()), "cudaMemsetAsync");
  }
  return counters_;
}

}  // namespace lockstep
