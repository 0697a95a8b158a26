#include "tests/cuda_emulator/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/cuda_emulator/kernel.h"
#include "tests/cuda_emulator/stream.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

#endif

namespace cuda_emulator {
namespace {

struct Block {
  std::size_t bytes = 0, mapped = 0;
  MemoryPlace place;
};

struct Heap {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> blocks;
  std::map<int, std::size_t> used;
  // -1 on processors without protection keys.
  int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
};

Heap& heap() {
  static Heap& heap = *new Heap;  // must outlive the threads of streams
  return heap;
}

std::size_t rounded_up(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

DeviceAccess::DeviceAccess() {
  if (heap().key < 0) return;
  before_ = static_cast<unsigned>(pkey_get(heap().key));
  pkey_set(heap().key, 0);
}

DeviceAccess::~DeviceAccess() {
  if (heap().key >= 0) pkey_set(heap().key, before_);
}

void* allocate(std::size_t bytes, MemoryKind kind, int device) {
  Heap& h = heap();
  const std::size_t mapped = rounded_up(bytes + 1);
  const bool on_device = kind == MemoryKind::device;
  {
    std::lock_guard lock(h.mutex);
    if (on_device && h.used[device] + mapped > total_memory()) return nullptr;
    if (on_device) h.used[device] += mapped;
  }
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  std::memset(p, 0xff, bytes);
  if (on_device && h.key >= 0 && pkey_mprotect(p, mapped, PROT_READ | PROT_WRITE, h.key) != 0) std::abort();
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(p) + bytes, mapped - bytes);
#endif
  std::lock_guard lock(h.mutex);
  h.blocks[address(p)] = {bytes, mapped, {kind, device}};
  return p;
}

bool release(void* p, MemoryKind kind) {
  Heap& h = heap();
  std::lock_guard lock(h.mutex);
  auto it = h.blocks.find(address(p));
  if (it == h.blocks.end() || it->second.place.kind != kind) return false;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(p, it->second.mapped);
#endif
  munmap(p, it->second.mapped);
  if (kind == MemoryKind::device) h.used[it->second.place.device] -= it->second.mapped;
  h.blocks.erase(it);
  return true;
}

MemoryPlace find(const void* p, std::size_t bytes) {
  Heap& h = heap();
  std::lock_guard lock(h.mutex);
  auto it = h.blocks.upper_bound(address(p));
  if (it == h.blocks.begin()) return {};
  --it;
  if (address(p) - it->first + bytes > it->second.bytes) return {};
  return it->second.place;
}

bool reaches_memory(const void* object, std::size_t bytes, int device) {
  Heap& h = heap();
  std::lock_guard lock(h.mutex);
  const bool others =
      std::ranges::any_of(h.used, [&](const auto& used) { return used.second > 0 && !reaches(device, used.first); });
  if (!others) return true;
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, static_cast<const char*>(object) + at, sizeof word);
    auto it = h.blocks.upper_bound(word);
    if (it == h.blocks.begin()) continue;
    const Block& block = (--it)->second;
    if (word - it->first >= block.bytes || block.place.kind != MemoryKind::device) continue;
    if (!reaches(device, block.place.device)) return false;
  }
  return true;
}

bool device_memory_is_protected() { return heap().key >= 0; }

std::size_t total_memory() {
  const char* set = std::getenv("LOCKSTEP_EMULATED_MEMORY");
  return set ? std::strtoull(set, nullptr, 10) : std::size_t{4} << 30;
}

std::size_t free_memory(int device) {
  std::lock_guard lock(heap().mutex);
  return total_memory() - heap().used[device];
}

}  // namespace cuda_emulator
