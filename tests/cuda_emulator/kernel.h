// The parts of CUDA C++ that the project's kernels use, for a plain C++ compiler. The same sources run on the CPU,
// block after block, with the threads of a block as fibers (see block.h). Included before any kernel, instead of nvcc's
// implicit include.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

// Blocks of one kernel run one after another on one thread.
#undef __shared__
#define __shared__ static thread_local
#define __launch_bounds__(...)

#define LOCKSTEP_KERNEL_COORDINATES(X) X(threadIdx) X(blockIdx) X(blockDim) X(gridDim)
#define LOCKSTEP_DECLARE(name) extern constinit thread_local uint3 name;
LOCKSTEP_KERNEL_COORDINATES(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
inline constexpr int warpSize = 32;

// Both wait for other threads. If one of those ends instead, that is a mistake, and the program ends.
void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

namespace cuda_emulator {

// The 64 bits that lane `source` of this warp passes to the same call.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source);
unsigned lane();
// The dynamic shared memory of the block that runs on this thread, aligned to 16.
void* dynamic_shared_memory();

template <typename T>
T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Whether kernels of a device can access all device memory that an object names, at aligned places.
bool reaches_memory(const void* object, std::size_t bytes, int device);

// A kernel with its arguments, to be queued on a stream. `run` is called once for every thread; all calls of a block
// happen on one thread of the operating system. `destroy` is called once at the end.
struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  void (*run)(void* arguments) = nullptr;
  void (*destroy)(void* arguments) = nullptr;
  void* arguments = nullptr;
  std::size_t argument_bytes = 0;
  // Whether the device's kernels can access all device memory that the arguments name.
  bool (*reaches_all)(const void* arguments, int device) = nullptr;
};
// Like cudaLaunchKernel, including its checks of limits.
cudaError_t launch(const Launch& launch, cudaStream_t stream);

// Padding keeps what was in memory before, which may look like an address.
template <typename T>
void clear_padding(T& argument) {
#if __has_builtin(__builtin_clear_padding)
  if constexpr (std::is_trivially_copyable_v<T>) __builtin_clear_padding(&argument);
#endif
}

template <typename T>
bool argument_reaches(const T& argument, int device) {
  return sizeof(T) < sizeof(void*) || alignof(T) < alignof(void*) || reaches_memory(&argument, sizeof argument, device);
}

template <typename... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                   const std::tuple<Parameters...>& arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  auto* call = new Call{kernel, arguments};
  std::apply([](Parameters&... each) { (clear_padding(each), ...); }, call->arguments);
  return launch({.grid = grid,
                 .block = block,
                 .shared_bytes = shared_bytes,
                 .run = [](void* p) { std::apply(static_cast<Call*>(p)->kernel, static_cast<Call*>(p)->arguments); },
                 .destroy = [](void* p) { delete static_cast<Call*>(p); },
                 .arguments = call,
                 .argument_bytes = (sizeof(Parameters) + ... + 0),
                 .reaches_all =
                     [](const void* p, int device) {
                       return std::apply(
                           [&](const Parameters&... each) { return (... && argument_reaches(each, device)); },
                           static_cast<const Call*>(p)->arguments);
                     }},
                stream);
}

}  // namespace cuda_emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  unsigned lane = cuda_emulator::lane();
  return cuda_emulator::shuffle(mask, value, lane - lane % width + static_cast<unsigned>(source) % width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {
  unsigned lane = cuda_emulator::lane(), source = lane ^ static_cast<unsigned>(bits);
  return cuda_emulator::shuffle(mask, value, source / width > lane / width ? lane : source);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  unsigned lane = cuda_emulator::lane(), source = lane + delta;
  return cuda_emulator::shuffle(mask, value, source / width > lane / width ? lane : source);
}

template <typename T>
T __ldg(const T* p) {
  return *p;
}

inline int atomicCAS(int* p, int expected, int desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
inline unsigned atomicAdd(unsigned* p, unsigned n) { return __atomic_fetch_add(p, n, __ATOMIC_SEQ_CST); }
