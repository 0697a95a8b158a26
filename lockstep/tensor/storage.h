// The memory behind tensors, with the tag that tells who uses it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/engine/engine.h"

namespace LOCKSTEP_API lockstep {

// Device memory comes from the device's caching allocator and goes back to it with the last handle, even while tasks
// still use it: whoever gets the memory next waits for them (Engine::make_successor). Tasks therefore name the resource
// and do not hold the storage. Host memory has no such second life: tasks that use it hold it.
//
// Unless it is pinned, which takes too long to allocate each time: then it is a block of a caching allocator like device
// memory, with `device` left empty, since the host reads and writes it. A copy on a device's stream may still be at it
// when its task has ended, so the host waits for the resource (Engine::wait_readable, wait_unused), as for any host
// memory that has one, and the last handle gives the block back as a device's does.
struct Storage {
  void* data = nullptr;
  std::size_t bytes = 0;
  Device device;
  // Null and empty for host memory that no task has used yet.
  std::shared_ptr<Engine> engine;
  Resource resource;
  // Host memory of a caching allocator, for good in the engine above.
  bool pinned = false;
  // Block::pool; not 0: computed in a recorded step, and each repetition overwrites it.
  int pool = 0;
  // How many writes have been described. A tensor that waits for backward() is compared with what it was then; see
  // autograd/saved_tensor.h. Atomic for threads that read the memory at the same time; those that write it do not.
  std::atomic<std::uint64_t> version{0};

  // Results that kernels computed from this memory, to share them among calls, such as packed weights: see ops/prepared.h.
  struct Derived {
    std::array<std::int64_t, 14> key;
    std::uint64_t version;  // of this memory then
    std::shared_ptr<Storage> storage;
  };
  std::mutex derived_mutex;
  std::vector<Derived> derived;

  void count_write() { version.store(version.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
};

// Uninitialized host memory, readable and writable at once.
std::shared_ptr<Storage> make_host_storage(std::size_t bytes);

}  // namespace lockstep
