// The memory of one device, or host memory that devices read and write themselves: blocks are kept when they are freed
// and handed out again, so that a steady training loop allocates nothing. A block is free as soon as the host says so;
// its next user inherits whoever still reads or writes it, as a dependency.
//
// What a recorded step uses has to stay where it is: it comes from a pool of its own, whose blocks are handed out again
// within the pool alone, for as long as there is one.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/device/memory.h"
#include "lockstep/engine/engine.h"

namespace LOCKSTEP_API lockstep {

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
  Resource resource;
  // The lane that used the block last.
  LaneId lane;
  int pool = 0;
};

struct MemoryCounters {
  std::size_t reserved_bytes = 0;  // taken from the system
  std::size_t used_bytes = 0;      // of these, held by tensors
  std::size_t peak_used_bytes = 0;
  std::size_t scratch_bytes = 0;  // taken besides by a GPU's kernels, for themselves
  std::int64_t system_allocations = 0;

  // Kept for whoever asks next.
  std::size_t cached_bytes() const { return reserved_bytes - used_bytes; }
};

class CachingAllocator {
 public:
  // `limit` in bytes bounds what is taken from `source`, scratch() included.
  CachingAllocator(std::shared_ptr<Engine> engine, std::string owner, std::size_t limit,
                   std::shared_ptr<MemorySource> source = std::make_shared<HostPages>());
  ~CachingAllocator();

  // A block of at least `bytes` bytes, aligned to 64. Among free blocks of the size class: one that `lane` used last (its
  // next user would wait for that lane anyway; no lane: none), then one that nobody uses, then new memory, and only where
  // there is none, or at the limit, one that another lane still uses or, last of all, new memory after giving back all
  // free blocks, and those of others that share the source. Throws Error, naming the owner and the bytes held, when all fail. `pool`: 0, or of make_pool().
  Block allocate(std::size_t bytes, LaneId lane, int pool = 0);
  void free(Block block);

  int make_pool();
  // From now on its blocks are everybody's.
  void drop_pool(int pool);
  // Gives all free blocks that are in no pool back to the system. Waits for who still uses them.
  void release_free();

  // More of the same memory, for kernels themselves; may outlive the allocator. The limit refuses nobody here, since a kernel
  // cannot wait for free blocks as allocate() does: it leaves less for blocks.
  std::shared_ptr<MemorySource> scratch() const;

  MemoryCounters counters() const;
  // counters().used_bytes, for who looks often and must not wait.
  std::shared_ptr<const std::atomic<std::int64_t>> used_bytes() const { return used_bytes_; }

 private:
  class CountedSource;

  // Null at the limit, or if the source has no more.
  void* take_new(std::size_t size);
  void count_used(std::size_t bytes);

  std::shared_ptr<Engine> engine_;
  std::string owner_;
  std::size_t limit_;
  std::shared_ptr<MemorySource> source_;
  std::shared_ptr<CountedSource> scratch_;
  mutable std::mutex mutex_;
  using FreeBlocks = std::map<std::size_t, std::vector<Block>>;  // by size class
  std::map<int, FreeBlocks> pools_;                              // 0: of none
  int next_pool_ = 1;
  MemoryCounters counters_;
  std::shared_ptr<std::atomic<std::int64_t>> used_bytes_ = std::make_shared<std::atomic<std::int64_t>>(0);
};

}  // namespace lockstep
