// What a CUDA kernel may use: its lane's stream, the libraries' handles bound to it, and device memory of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "lockstep/backend/context.h"
#include "lockstep/device/cuda/cuda_stream.h"
#include "lockstep/device/memory.h"

// As in cudnn.h and cublasLt.h, which kernels need not see.
struct cudnnContext;
struct cublasLtContext;

namespace lockstep {

class CudaContext final : public KernelContext {
 public:
  // Kernels get their own memory from `memory`, the GPU's.
  CudaContext(std::shared_ptr<CudaStream> stream, std::shared_ptr<MemorySource> memory);
  ~CudaContext() override;

  cudaStream_t stream() const { return stream_->handle(); }
  // Where kernels report errors that data cause; in the GPU's address space.
  ErrorSlot* errors() const { return stream_->errors(); }
  // The GPU that the stream belongs to.
  int gpu() const { return stream_->gpu(); }

  // Made when first asked for: only compute lanes need them.
  cudnnContext* cudnn();
  cublasLtContext* cublas();

  // At least `bytes` bytes of the GPU's memory, aligned to 256; throws Error if there are not so many. Work on the stream that
  // used what an earlier call returned is not disturbed, but each call returns the same memory: a kernel family asks once
  // and divides it.
  void* device_scratch(std::size_t bytes);
  // kCounters zeros in the GPU's memory, which each kernel that counts with them leaves as zeros.
  unsigned* counters();
  static constexpr std::size_t kCounters = 65536;

  // Makes all that `like` has come to need, so that nothing of it happens while this one's stream is captured.
  void prepare_capture(const CudaContext& like);

 private:
  void* take(std::size_t bytes);

  std::shared_ptr<CudaStream> stream_;
  std::shared_ptr<MemorySource> memory_;
  cudnnContext* cudnn_ = nullptr;
  cublasLtContext* cublas_ = nullptr;
  void* scratch_ = nullptr;
  std::atomic<std::size_t> scratch_bytes_ = 0;
  unsigned* counters_ = nullptr;
};

// Makes its GPU the calling thread's: only there may kernels be queued on its stream.
CudaContext& cuda_context(KernelContext& context);

}  // namespace lockstep
