// A CUDA kernel's resources: its lane's stream, library handles bound to that stream, and its own device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "lockstep/backend/context.h"
#include "lockstep/device/cuda/cuda_stream.h"
#include "lockstep/device/memory.h"

// Declared as in cudnn.h and cublasLt.h, so that kernels need not include these.
struct cudnnContext;
struct cublasLtContext;

namespace lockstep {

class CudaContext final : public KernelContext {
 public:
  // Kernels take their own memory from `memory`, the GPU's source.
  CudaContext(std::shared_ptr<CudaStream> stream, std::shared_ptr<MemorySource> memory);
  ~CudaContext() override;

  cudaStream_t stream() const { return stream_->handle(); }
  // Address at which kernels report data errors, in the GPU's address space.
  ErrorSlot* errors() const { return stream_->errors(); }
  // The GPU that the stream belongs to.
  int gpu() const { return stream_->gpu(); }

  // The handles are made at first use, because only compute lanes need them.
  cudnnContext* cudnn();
  cublasLtContext* cublas();

  // Returns at least `bytes` bytes of the GPU's memory, aligned to 256 bytes; throws Error if there is not enough.
  // Queued work that uses the result of an earlier call stays valid, but each call returns the same memory, so a kernel
  // family calls once and divides the result.
  void* device_scratch(std::size_t bytes);
  // Returns kCounters zeros in the GPU's memory. A kernel that counts with them must reset them to zero.
  unsigned* counters();
  static constexpr std::size_t kCounters = 65536;

  // Allocates in advance everything that `like` has needed, so that nothing is allocated while this stream is captured.
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

// Returns the CUDA context and selects its GPU for the calling thread, which queueing kernels on its stream requires.
CudaContext& cuda_context(KernelContext& context);

}  // namespace lockstep
