// The memory of emulated GPUs. If the processor has protection keys, only the threads of streams can access it: a
// program that dereferences a device pointer on the host gets a segmentation fault, as with a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace cuda_emulator {

// Lets the calling thread access device memory while this object lives.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  unsigned before_ = 0;
};

enum class MemoryKind { unknown, device, pinned };

struct MemoryPlace {
  MemoryKind kind = MemoryKind::unknown;
  int device = -1;
};

// Fills the block with 0xff bytes, which are NaN. Null if the device has too little memory left.
void* allocate(std::size_t bytes, MemoryKind kind, int device);
// False if this is not the address of a block of that kind.
bool release(void* p, MemoryKind kind);
// Where p lies. If [p, p + bytes) is not within one block, the result is unknown.
MemoryPlace find(const void* p, std::size_t bytes);
// Whether the processor keeps the host away from device memory.
bool device_memory_is_protected();
std::size_t total_memory();
std::size_t free_memory(int device);

}  // namespace cuda_emulator
