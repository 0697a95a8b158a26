#include "lockstep/backend/cuda/cuda_context.h"

#include <cublasLt.h>
#include <cudnn.h>

#include <utility>

#include "lockstep/backend/cuda/library_status.h"
#include "lockstep/base/error.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {

CudaContext::CudaContext(std::shared_ptr<CudaStream> stream, std::shared_ptr<MemorySource> memory)
    : stream_(std::move(stream)), memory_(std::move(memory)) {}

CudaContext::~CudaContext() {
  GpuScope scope(gpu(), std::nothrow);
  cudaStreamSynchronize(stream_->handle());
  if (cudnn_) cudnnDestroy(cudnn_);
  if (cublas_) cublasLtDestroy(cublas_);
  if (scratch_) memory_->free(scratch_, scratch_bytes_);
  if (counters_) memory_->free(counters_, kCounters * sizeof(unsigned));
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
  // Kernels in flight may still use the earlier memory.
  check_cuda(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  if (scratch_) memory_->free(std::exchange(scratch_, nullptr), scratch_bytes_.exchange(0));
  scratch_ = take(bytes);
  scratch_bytes_ = bytes;
  return scratch_;
}

void* CudaContext::take(std::size_t bytes) {
  void* block = memory_->allocate(bytes);
  if (block == nullptr) {
    fail("cuda:{}: out of memory: a kernel needs {} bytes of its own, the GPU has {} left", gpu(), bytes,
         memory_->left().value_or(0));
  }
  return block;
}

void CudaContext::prepare_capture(const CudaContext& like) {
  cudnn();
  cublas();
  counters();
  device_scratch(like.scratch_bytes_);
  check_cuda(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
}

CudaContext& cuda_context(KernelContext& context) {
  auto& cuda = static_cast<CudaContext&>(context);
  check_cuda(cudaSetDevice(cuda.gpu()), "cudaSetDevice");
  return cuda;
}

unsigned* CudaContext::counters() {
  if (!counters_) {
    GpuScope scope(gpu());
    counters_ = static_cast<unsigned*>(take(kCounters * sizeof(unsigned)));
    check_cuda(cudaMemsetAsync(counters_, 0, kCounters * sizeof(unsigned), stream()), "cudaMemsetAsync");
  }
  return counters_;
}

}  // namespace lockstep
