#include "lockstep/device/cuda/cuda_stream.h"

#include <new>

#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {

CudaStream::CudaStream(int gpu, bool urgent) : gpu_(gpu) {
  GpuScope scope(gpu);
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, urgent ? greatest : least),
             "cudaStreamCreateWithPriority");
  void* slot = nullptr;
  check_cuda(cudaHostAlloc(&slot, sizeof(ErrorSlot), cudaHostAllocMapped), "cudaHostAlloc");
  slot_ = new (slot) ErrorSlot;
  void* seen_by_gpu = nullptr;
  check_cuda(cudaHostGetDevicePointer(&seen_by_gpu, slot, 0), "cudaHostGetDevicePointer");
  gpu_slot_ = static_cast<ErrorSlot*>(seen_by_gpu);
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(stream_);
  cudaFreeHost(slot_);
  cudaStreamDestroy(stream_);
}

}  // namespace lockstep
