// The memory behind tensors, with the tag that tells who uses it.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/device/device.h"
#include "lockstep/engine/engine.h"

namespace lockstep {

// Device memory comes from the device's caching allocator and goes back to it with the last handle, even while
// tasks still use it: whoever gets the memory next waits for them (Engine::make_successor). Tasks therefore name
// the resource and do not hold the storage. Host memory has no such second life: tasks that use it hold it.
struct Storage {
  void* data = nullptr;
  std::size_t bytes = 0;
  Device device;
  // Null and empty for host memory that no task has used yet.
  std::shared_ptr<Engine> engine;
  Resource resource;
};

// Uninitialized host memory, readable and writable at once.
std::shared_ptr<Storage> make_host_storage(std::size_t bytes);

}  // namespace lockstep
