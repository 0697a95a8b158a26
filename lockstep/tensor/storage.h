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
// `device` is empty, because the host reads and writes it. A copy on a device's stream may still use it after its task
// has ended, so the host waits for the resource (Engine::wait_readable, wait_unused), as for any host memory that has
// one. The last handle returns the block to the allocator.
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
  // The memory is another library's or the caller's, who sees what is written to it.
  bool foreign = false;
  // The owner writes the memory unseen as soon as a call has returned, as programs of Python write NumPy's arrays: no
  // task that reads it may be left then. Without it, `foreign` memory stays as it is until tasks have read it.
  std::atomic<bool> read_at_once{false};
  // Number of described writes. backward() compares it with the number when a tensor was saved; see
  // autograd/saved_array.h. A write counts when its task has been pushed: whoever sees the new number pushes its tasks
  // behind the write, even in another thread.
  std::atomic<std::uint64_t> version{0};
  // If it is set, describing a write is an error with this text: for copies that are shown to the user, where a change
  // would be lost.
  const char* read_only = nullptr;

  // What a layer above keeps with this memory, for as long as the memory lives. A program has one kind of extension.
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

  // The storage whose resource and version are those of this memory.
  Storage& owner() { return host ? *host : *this; }
  const Storage& owner() const { return host ? *host : *this; }
  // Waits for all tasks that write the memory; throws their failure.
  void wait_readable();
  // For host memory that the host is about to write, `whole` or in part: waits for all tasks that use it. What a failed
  // task should have written is then written anew; a part of it throws the failure.
  void wait_writable(bool whole);
  // For host memory: `engine`'s tasks will use it. Waits for those of another engine. Device memory has its engine from
  // the start.
  void adopt(const std::shared_ptr<Engine>& user);
};

// Uninitialized host memory, readable and writable at once.
std::shared_ptr<Storage> make_host_storage(std::size_t bytes);
// The same memory as a storage of `device`, a CPU device of `engine`, which adopts it. Tasks that use it must hold the
// storage's `host`.
std::shared_ptr<Storage> lend_host_storage(std::shared_ptr<Storage> host, Device device,
                                           const std::shared_ptr<Engine>& engine);
// `bytes` of a block, which returns to its allocator with the last handle. `device`: empty for pinned host memory.
std::shared_ptr<Storage> make_block_storage(std::shared_ptr<CachingAllocator> allocator, Block block, std::size_t bytes,
                                            Device device, std::shared_ptr<Engine> engine);

}  // namespace lockstep
