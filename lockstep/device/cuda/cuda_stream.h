// A CUDA stream.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/device/cuda/error_slot.h"

namespace lockstep {

class CudaStream {
 public:
  // Work of an urgent stream goes before that of others.
  CudaStream(int gpu, bool urgent);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t handle() const { return stream_; }
  int gpu() const { return gpu_; }
  // In the GPU's address space.
  ErrorSlot* errors() const { return gpu_slot_; }

 private:
  int gpu_;
  cudaStream_t stream_ = nullptr;
  ErrorSlot* slot_ = nullptr;
  ErrorSlot* gpu_slot_ = nullptr;
};

}  // namespace lockstep
