// Internal: allocates the memory of one device, or pinned host memory. Freed blocks are kept and reused, so a steady
// training loop allocates nothing. A block is free as soon as the host drops it; its next user depends on the tasks
// that still read or write it.
//
// The memory of a recorded step must stay in place. It comes from a separate pool, whose blocks are reused only within
// the pool while the pool exists.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/device/memory.h"
#include "lockstep/engine/engine.h"

namespace lockstep {

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
  Resource resource;
  // The lane that used the block last.
  LaneId lane;
  int pool = 0;
};

class CachingAllocator {
 public:
  // `limit`: the most bytes to take from `source`, including scratch().
  CachingAllocator(std::shared_ptr<Engine> engine, std::string owner, std::size_t limit,
                   std::shared_ptr<MemorySource> source = std::make_shared<HostPages>());
  ~CachingAllocator();

  // Returns a block of at least `bytes` bytes, aligned to 64. Tries free blocks of the size class first: one that
  // `lane` used last, because its next user would wait for that lane anyway (skipped without a lane), then one that no
  // task uses. Then tries new memory, a free block that another lane still uses, and new memory after returning all
  // free blocks, including those of other users of the source. If all fail, throws an Error that names the owner and
  // the bytes held. `pool`: 0, or from make_pool().
  Block allocate(std::size_t bytes, LaneId lane, int pool = 0);
  void free(Block block);

  int make_pool();
  // Makes the pool's blocks available to all allocations.
  void drop_pool(int pool);
  // Returns all free blocks outside pools to the system. Waits for tasks that still use them, and for another thread
  // that is returning blocks: when it is done, their memory is there for both.
  void release_free();

  // Returns a source of the same memory for kernels; it may outlive the allocator. It ignores the limit, because a
  // kernel cannot wait for free blocks as allocate() does. What it takes is no longer available to blocks.
  std::shared_ptr<MemorySource> scratch() const;

  MemoryCounters counters() const;
  // Returns counters().used_bytes without a lock, for frequent readers that must not wait.
  std::shared_ptr<const std::atomic<std::int64_t>> used_bytes() const { return used_bytes_; }

 private:
  class CountedSource;

  // Returns null at the limit, or if the source has no memory left.
  void* take_new(std::size_t size);
  // Whether release_free() would return something.
  bool has_free() const;
  void count_used(std::size_t bytes);

  std::shared_ptr<Engine> engine_;
  std::string owner_;
  std::size_t limit_;
  std::shared_ptr<MemorySource> source_;
  std::shared_ptr<CountedSource> scratch_;
  std::mutex release_mutex_;  // locked before mutex_, and held while release_free() waits
  mutable std::mutex mutex_;
  using FreeBlocks = std::map<std::size_t, std::vector<Block>>;  // by size class
  std::map<int, FreeBlocks> pools_;                              // 0: no pool
  int next_pool_ = 1;
  MemoryCounters counters_;
  std::shared_ptr<std::atomic<std::int64_t>> used_bytes_ = std::make_shared<std::atomic<std::int64_t>>(0);
};

}  // namespace lockstep
