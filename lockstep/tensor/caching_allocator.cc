#include "lockstep/tensor/caching_allocator.h"

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {

// Four classes to each power of two: at most a quarter of a block is wasted.
std::size_t size_class(std::size_t bytes) {
  constexpr std::size_t kSmallest = 256;
  if (bytes <= kSmallest) return kSmallest;
  std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

CachingAllocator::CachingAllocator(std::shared_ptr<Engine> engine, std::string owner, std::size_t limit,
                                   std::shared_ptr<MemorySource> source)
    : engine_(std::move(engine)), owner_(std::move(owner)), limit_(limit), source_(std::move(source)) {}

CachingAllocator::~CachingAllocator() { release_free(); }

void CachingAllocator::release_free() {
  std::map<std::size_t, std::vector<Block>> all;
  {
    std::scoped_lock lock(mutex_);
    all.swap(free_);
  }
  std::size_t released = 0;
  // Not under the lock: a task that is waited for may be the last to hold a tensor.
  for (auto& [bytes, blocks] : all) {
    for (Block& block : blocks) {
      engine_->wait_unused(block.resource);
      source_->free(block.data, block.bytes);
      released += block.bytes;
    }
  }
  std::scoped_lock lock(mutex_);
  counters_.reserved_bytes -= released;
}

Block CachingAllocator::allocate(std::size_t bytes, LaneId lane) {
  std::size_t size = size_class(bytes);
  std::unique_lock lock(mutex_);
  std::vector<Block>& blocks = free_[size];
  auto take = [&](std::vector<Block>::iterator it) {
    Block block = std::move(*it);
    blocks.erase(it);
    block.resource = engine_->make_successor(block.resource);
    block.lane = lane;
    count_used(counters_.used_bytes + size);
    return block;
  };
  // From the back: the block freed last is the likeliest to be in the cache.
  for (auto it = blocks.end(); lane.index >= 0 && it != blocks.begin();) {
    if ((--it)->lane == lane) return take(it);
  }
  for (auto it = blocks.end(); it != blocks.begin();) {
    if (engine_->unused((--it)->resource)) return take(it);
  }
  void* data = take_new(size);
  if (data == nullptr) {
    if (!blocks.empty()) return take(blocks.begin());
    lock.unlock();
    release_free();
    lock.lock();
    data = take_new(size);
  }
  if (data == nullptr) {
    const bool at_limit = counters_.reserved_bytes + size > limit_;
    const std::string taken = at_limit ? fmt::format("{} of at most {} are taken", counters_.reserved_bytes, limit_)
                                       : fmt::format("there are no more than the {} taken", counters_.reserved_bytes);
    // Other processes, and other logical devices, take from it as well.
    const std::optional<std::size_t> left = source_->left();
    fail("{}: out of memory: {} bytes asked for, {}, {} of them held by tensors{}", owner_, bytes, taken,
         counters_.used_bytes, left ? fmt::format("; the device has {} left for all", *left) : "");
  }
  Block block{data, size, engine_->make_resource(), lane};
  counters_.reserved_bytes += size;
  count_used(counters_.used_bytes + size);
  ++counters_.system_allocations;
  return block;
}

void* CachingAllocator::take_new(std::size_t size) {
  return counters_.reserved_bytes + size <= limit_ ? source_->allocate(size) : nullptr;
}

void CachingAllocator::free(Block block) {
  std::scoped_lock lock(mutex_);
  count_used(counters_.used_bytes - block.bytes);
  free_[block.bytes].push_back(std::move(block));
}

void CachingAllocator::count_used(std::size_t bytes) {
  counters_.used_bytes = bytes;
  counters_.peak_used_bytes = std::max(counters_.peak_used_bytes, bytes);
  used_bytes_->store(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

MemoryCounters CachingAllocator::counters() const {
  std::scoped_lock lock(mutex_);
  return counters_;
}

}  // namespace lockstep
