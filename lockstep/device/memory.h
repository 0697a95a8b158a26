// Internal: blocks of host memory for tensors.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/base/export.h"

namespace lockstep {

// Returns uninitialized memory. A block of 2 MiB or more starts at a multiple of 2 MiB and asks for huge pages, which
// make address translation faster. A smaller one starts at a multiple of 64 bytes, a cache line. Never null, even for 0
// bytes; throws Error if there is not enough memory.
void* allocate_pages(std::size_t bytes);

// Frees a block; `bytes` must be the allocated size. Null is ignored.
void free_pages(void* block, std::size_t bytes) noexcept;

// Source of an allocator's memory: the host's pages, a device's memory, or host memory that a device reads itself.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Returns uninitialized memory, aligned to at least 64 bytes; null if there is not enough. Throws Error if the device
  // has failed.
  virtual void* allocate(std::size_t bytes) = 0;
  // `bytes` must be the allocated size.
  virtual void free(void* block, std::size_t bytes) noexcept = 0;
  // Bytes still available to all users together; empty if unknown.
  virtual std::optional<std::size_t> left() const { return {}; }
  // Asks the other users of the source to return unused memory.
  virtual void reclaim() {}
};

// Uses allocate_pages() and free_pages(), but returns null instead of throwing.
class HostPages final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override;
  void free(void* block, std::size_t bytes) noexcept override;
};

}  // namespace lockstep
