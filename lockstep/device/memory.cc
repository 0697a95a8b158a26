#include "lockstep/device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCacheLine = 64;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::size_t mapped_bytes(std::size_t bytes) {
  return round_up(bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
}

// Maps enough to hold an aligned block wherever the mapping starts, and unmaps what lies before and after the block.
void* map_aligned(std::size_t bytes) {
  const std::size_t total = bytes + kHugePage;
  void* mapping = ::mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const std::size_t before = round_up(address, kHugePage) - address;
  char* block = static_cast<char*>(mapping) + before;
  if (before > 0) ::munmap(mapping, before);
  ::munmap(block + bytes, total - before - bytes);
  // Only a hint: a kernel without huge pages uses small ones.
  ::madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

// Returns null if there is not enough memory.
void* try_to_allocate(std::size_t bytes) {
  constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max() - 2 * kHugePage;
  if (bytes > kMost) return nullptr;
  return bytes >= kHugePage ? map_aligned(mapped_bytes(bytes))
                            : std::aligned_alloc(kCacheLine, round_up(std::max(bytes, kCacheLine), kCacheLine));
}

}  // namespace

void* allocate_pages(std::size_t bytes) {
  void* block = try_to_allocate(bytes);
  check(block != nullptr, "out of memory: cannot allocate {} bytes on the host", bytes);
  return block;
}

void free_pages(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  if (bytes >= kHugePage) {
    ::munmap(block, mapped_bytes(bytes));
  } else {
    std::free(block);
  }
}

void* HostPages::allocate(std::size_t bytes) { return try_to_allocate(bytes); }

void HostPages::free(void* block, std::size_t bytes) noexcept { free_pages(block, bytes); }

}  // namespace lockstep
