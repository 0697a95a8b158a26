// Internal: the memory behind arrays, with the resource that tracks its users.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/device/device.h"
#include "lockstep/engine/engine.h"

namespace lockstep {

class CachingAllocator;  // tensor/caching_allocator.h
struct Block;

// Device memory comes from the device's caching allocator and returns to it with the last handle, even while tasks
// still use it: the next user of the memory waits for them (Engine::make_successor). Tasks therefore name the resource
// and do not hold the storage. Host memory is not reused in this way, so tasks that use it hold it.
//
// Pinned host memory takes too long to allocate each time, so it is a block of a caching allocator like device memory;
// `device` is empty, because the host reads and writes it. A copy on a device's stream may still use it after the
// copy's task has ended, so the host waits for the resource (Engine::wait_readable, wait_unused), as for any host
// memory that has one. The last handle returns the block to the allocator.
//
// A CPU device reads host memory where it is: a storage of that device stands for the memory, and `host` is its owner.
struct Storage {
  void* data = nullptr;
  std::size_t bytes = 0;
  Device device;
  // Both are null for host memory that no task has used yet.
  std::shared_ptr<Engine> engine;
  Resource resource;
  // Host memory of a caching allocator; it always belongs to the engine above.
  bool pinned = false;
  // The memory belongs to another library or to the caller, which sees what is written to it.
  bool foreign = false;
  // The owner may write the memory as soon as a call returns, as Python programs write NumPy arrays, so no task may
  // still read it then. If false, the owner leaves `foreign` memory unchanged until tasks have read it.
  std::atomic<bool> read_at_once{false};
  // Number of described writes. backward() compares it with the number when a tensor was saved; see
  // autograd/saved_array.h. A write counts when its task has been pushed: a thread that sees the new number pushes its
  // tasks after the write.
  std::atomic<std::uint64_t> version{0};
  // If set, describing a write is an error with this text. It is set for copies that are shown to the user, because a
  // change of a copy would be lost.
  const char* read_only = nullptr;

  // Data that a higher layer keeps with this memory, as long as the memory lives. A program has one kind of extension.
  struct Extension {
    virtual ~Extension() = default;
  };
  // The host memory that this storage of a CPU device stands for; null for memory of its own.
  std::shared_ptr<Storage> host;

  // Protects the extension, and the engine and the resource of host memory that threads share.
  std::mutex mutex;
  std::unique_ptr<Extension> extension;

  void check_writable() const { check(read_only == nullptr, "{}", read_only == nullptr ? "" : read_only); }
  void count_write() { owner().version.fetch_add(1, std::memory_order_release); }
  std::uint64_t written() const { return owner().version.load(std::memory_order_acquire); }

  // Returns the storage that has the resource and version of this memory: `host`, or this storage itself.
  Storage& owner() { return host ? *host : *this; }
  const Storage& owner() const { return host ? *host : *this; }
  // Waits for all tasks that write the memory; throws their failure.
  void wait_readable();
  // Waits for all tasks that use this host memory, before the host writes it, `whole` or in part. If a task that wrote
  // it failed, a whole write clears the failure, and a partial write throws it.
  void wait_writable(bool whole);
  // Prepares host memory for tasks of `user`. If the memory has another engine, waits for that engine's tasks, or
  // throws if the memory is pinned. Device memory has its engine from the start.
  void adopt(const std::shared_ptr<Engine>& user);
};

// Returns uninitialized host memory, which the host can read and write without waiting.
std::shared_ptr<Storage> make_host_storage(std::size_t bytes);
// Returns a storage of `device`, a CPU device of `engine`, for the same memory, which `engine` adopts. Tasks that use
// the storage must hold its `host`.
std::shared_ptr<Storage> lend_host_storage(std::shared_ptr<Storage> host, Device device,
                                           const std::shared_ptr<Engine>& engine);
// Returns a storage in a block, which the last handle returns to its allocator. `device`: empty for pinned memory.
std::shared_ptr<Storage> make_block_storage(std::shared_ptr<CachingAllocator> allocator, Block block, std::size_t bytes,
                                            Device device, std::shared_ptr<Engine> engine);

}  // namespace lockstep
