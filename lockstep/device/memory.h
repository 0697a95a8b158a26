// Blocks of host memory for tensors.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// Uninitialized memory. A block of 2 MiB or more starts at a multiple of 2 MiB and asks for huge pages, with
// which the processor finds addresses faster; a smaller one starts at a multiple of 64, a cache line. Never
// null, even for no bytes; throws Error if there is not that much.
void* allocate_pages(std::size_t bytes);

// Gives a block back; `bytes` as when it was allocated. Null is ignored.
void free_pages(void* block, std::size_t bytes) noexcept;

// Where an allocator gets its memory: the host's pages, a device's memory, host memory that a device reads itself.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Uninitialized, aligned to 64 at least; null if there is not that much. Throws Error if the device has failed.
  virtual void* allocate(std::size_t bytes) = 0;
  // `bytes` as when it was allocated.
  virtual void free(void* block, std::size_t bytes) noexcept = 0;
  // Bytes that there are yet, whoever took the others; nothing where that is not known.
  virtual std::optional<std::size_t> left() const { return {}; }
  // Asks the others that take from it to give back what they do not use.
  virtual void reclaim() {}
};

// allocate_pages and free_pages.
class HostPages final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override;
  void free(void* block, std::size_t bytes) noexcept override;
};

}  // namespace lockstep
