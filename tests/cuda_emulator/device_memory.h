// The memory of emulated GPUs. Where the processor has protection keys, only the threads of streams can touch it: a
// program that follows a device pointer on the host ends with a segmentation fault, as it would with a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace cuda_emulator {

// Lets the calling thread touch device memory as long as this lives.
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

// Every byte is 0xff at first: NaN. Null if the device has not so many left.
void* allocate(std::size_t bytes, MemoryKind kind, int device);
// False if this is not the address of a block of that kind.
bool release(void* p, MemoryKind kind);
// Where p lies; all of [p, p + bytes) is in one block, or the result is unknown.
MemoryPlace find(const void* p, std::size_t bytes);
// Whether the processor keeps the host away from device memory.
bool device_memory_is_protected();
std::size_t total_memory();
std::size_t free_memory(int device);

}  // namespace cuda_emulator
