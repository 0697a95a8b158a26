#include <cuda_runtime_api.h>

#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/device/gpu.h"

namespace lockstep {
namespace {

// Returns null if there is not enough memory.
void* checked(void* block, cudaError_t status, const char* call) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status, call);
  return block;
}

class GpuMemory final : public MemorySource {
 public:
  explicit GpuMemory(int gpu) : gpu_(gpu) {}
  void* allocate(std::size_t bytes) override {
    GpuScope scope(gpu_);
    void* block = nullptr;
    const cudaError_t status = cudaMalloc(&block, bytes);
    return checked(block, status, "cudaMalloc");
  }
  void free(void* block, std::size_t) noexcept override {
    GpuScope scope(gpu_, std::nothrow);
    cudaFree(block);
  }
  std::optional<std::size_t> left() const override {
    GpuScope scope(gpu_);
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

 private:
  const int gpu_;
};

// Host memory that is allocated in one GPU's context and usable by all GPUs.
class PinnedMemory final : public MemorySource {
 public:
  explicit PinnedMemory(int gpu) : gpu_(gpu) {}
  void* allocate(std::size_t bytes) override {
    GpuScope scope(gpu_);
    void* block = nullptr;
    const cudaError_t status = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    return checked(block, status, "cudaHostAlloc");
  }
  void free(void* block, std::size_t) noexcept override {
    GpuScope scope(gpu_, std::nothrow);
    cudaFreeHost(block);
  }

 private:
  const int gpu_;
};

}  // namespace

std::shared_ptr<MemorySource> make_gpu_memory(int gpu) { return std::make_shared<GpuMemory>(gpu); }
std::shared_ptr<MemorySource> make_pinned_memory(int gpu) { return std::make_shared<PinnedMemory>(gpu); }

}  // namespace lockstep
