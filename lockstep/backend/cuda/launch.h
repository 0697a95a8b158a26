// Starts kernels. All CUDA C++ sources include it. A plain C++ compiler also compiles them, for the emulator in
// tests/cuda_emulator.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <tuple>

#include "lockstep/device/cuda/cuda_status.h"

#ifdef LOCKSTEP_CUDA_EMULATED
#include <tests/cuda_emulator/kernel.h>  // instead of nvcc's implicit include
#endif

namespace lockstep {

// kernel<<<grid, block, shared_bytes, stream>>>(arguments...), which only nvcc understands. Throws errors of the
// launch; a later wait throws errors of the kernel.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            const Arguments&... arguments) {
  std::tuple<Parameters...> parameters(arguments...);
#ifdef LOCKSTEP_CUDA_EMULATED
  check_cuda(cuda_emulator::launch(kernel, grid, block, shared_bytes, stream, parameters), "launch");
#else
  auto addresses = std::apply([](auto&... p) { return std::array<void*, sizeof...(p)>{&p...}; }, parameters);
  check_cuda(
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, addresses.data(), shared_bytes, stream),
      "launch");
#endif
}

// Returns the dynamic shared memory of the block, aligned to 16 bytes.
template <typename T>
__device__ T* shared_memory() {
#ifdef LOCKSTEP_CUDA_EMULATED
  return static_cast<T*>(cuda_emulator::dynamic_shared_memory());
#else
  extern __shared__ float4 lockstep_shared_memory[];
  return reinterpret_cast<T*>(lockstep_shared_memory);
#endif
}

}  // namespace lockstep
