#include "tests/gpu/gpu_testing.h"

#include <algorithm>

#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/device/gpu.h"

namespace lockstep::testing {

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

GpuMemory::GpuMemory(int gpu)
    : stream_(std::make_shared<CudaStream>(gpu, false)), context_(stream_, make_gpu_memory(gpu)) {}

GpuMemory::~GpuMemory() { release(); }

void GpuMemory::release() {
  cudaStreamSynchronize(stream());
  for (void* block : blocks_) cudaFree(block);
  blocks_.clear();
}

void* GpuMemory::allocate(std::size_t bytes, std::size_t offset) {
  GpuScope scope(context_.gpu());
  void* block = nullptr;
  check_cuda(cudaMalloc(&block, std::max<std::size_t>(bytes + offset, 1)), "cudaMalloc");
  blocks_.push_back(block);
  check_cuda(cudaMemsetAsync(block, 0xff, bytes + offset, stream()), "cudaMemsetAsync");
  return static_cast<std::byte*>(block) + offset;
}

void* GpuMemory::upload(const void* host, std::size_t bytes, std::size_t offset) {
  void* device = allocate(bytes, offset);
  check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()), "cudaMemcpyAsync");
  return device;
}

void GpuMemory::download(void* host, const void* device, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()), "cudaMemcpyAsync");
  synchronize();
}

void GpuMemory::synchronize() {
  stream_->synchronize(stream_->record(false));
  stream_->finished();
}

}  // namespace lockstep::testing
