#include "lockstep/tensor/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace lockstep {
namespace {

// Above the smallest class, four classes per power of two waste less than a fifth of a block.
std::size_t size_class(std::size_t bytes) {
  constexpr std::size_t kSmallest = 256;
  if (bytes <= kSmallest) return kSmallest;
  std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

class CachingAllocator::CountedSource final : public MemorySource {
 public:
  explicit CountedSource(std::shared_ptr<MemorySource> source) : source_(std::move(source)) {}
  void* allocate(std::size_t bytes) override {
    void* block = source_->allocate(bytes);
    if (block != nullptr) bytes_ += bytes;
    return block;
  }
  void free(void* block, std::size_t bytes) noexcept override {
    source_->free(block, bytes);
    bytes_ -= bytes;
  }
  std::optional<std::size_t> left() const override { return source_->left(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<MemorySource> source_;
  std::atomic<std::size_t> bytes_{0};
};

CachingAllocator::CachingAllocator(std::shared_ptr<Engine> engine, std::string owner, std::size_t limit,
                                   std::shared_ptr<MemorySource> source)
    : engine_(std::move(engine)), owner_(std::move(owner)), limit_(limit), source_(source),
      scratch_(std::make_shared<CountedSource>(std::move(source))) {
  pools_[0];
}

CachingAllocator::~CachingAllocator() {
  while (pools_.size() > 1) drop_pool(pools_.rbegin()->first);
  release_free();
}

int CachingAllocator::make_pool() {
  std::scoped_lock lock(mutex_);
  pools_[next_pool_];
  return next_pool_++;
}

void CachingAllocator::drop_pool(int pool) {
  std::scoped_lock lock(mutex_);
  for (auto& [bytes, blocks] : pools_.at(pool)) {
    auto& free = pools_[0][bytes];
    for (Block& block : blocks) free.push_back(std::move(block));
  }
  pools_.erase(pool);
}

void CachingAllocator::release_free() {
  std::scoped_lock one_at_a_time(release_mutex_);
  FreeBlocks all;
  {
    std::scoped_lock lock(mutex_);
    all.swap(pools_[0]);
  }
  std::size_t released = 0;
  // Without the lock, because this waits for tasks that may drop an array's last handle, which calls free().
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

Block CachingAllocator::allocate(std::size_t bytes, LaneId lane, int pool) {
  // Sums of sizes must not overflow.
  check(bytes <= std::numeric_limits<std::size_t>::max() / 4, "{}: out of memory: {} bytes requested", owner_, bytes);
  std::size_t size = size_class(bytes);
  std::unique_lock lock(mutex_);
  std::vector<Block>& blocks = pools_.at(pool)[size];
  auto take = [&](std::vector<Block>::iterator it) {
    Block block = std::move(*it);
    blocks.erase(it);
    block.resource = engine_->make_successor(block.resource);
    block.lane = lane;
    block.pool = pool;
    count_used(counters_.used_bytes + size);
    return block;
  };
  // From the back: the block freed last is the most likely to be in the cache.
  for (auto it = blocks.end(); lane.index >= 0 && it != blocks.begin();) {
    if ((--it)->lane == lane) return take(it);
  }
  for (auto it = blocks.end(); it != blocks.begin();) {
    if (engine_->unused((--it)->resource)) return take(it);
  }
  void* data = take_new(size);
  if (data == nullptr) {
    if (!blocks.empty()) return take(blocks.begin());
    // Another thread may take what this one releases and free it again. Then that is there to release.
    do {
      lock.unlock();
      release_free();
      lock.lock();
      data = take_new(size);
    } while (data == nullptr && has_free());
  }
  if (data == nullptr && counters_.reserved_bytes + scratch_->bytes() + size <= limit_) {
    lock.unlock();
    source_->reclaim();
    lock.lock();
    data = take_new(size);
  }
  if (data == nullptr) {
    const std::size_t scratch = scratch_->bytes(), all = counters_.reserved_bytes + scratch;
    const std::string taken = all + size > limit_ ? fmt::format("{} of at most {} are in use", all, limit_)
                                                  : fmt::format("only the {} in use exist", all);
    // Other processes and other logical devices use this memory, too.
    const std::optional<std::size_t> left = source_->left();
    fail("{}: out of memory: {} bytes requested, {}, {} of them held by tensors{}{}", owner_, bytes, taken,
         counters_.used_bytes, scratch > 0 ? fmt::format(", {} by kernels", scratch) : "",
         left ? fmt::format("; {} are left for all users of this memory", *left) : "");
  }
  Block block{data, size, engine_->make_resource(), lane, pool};
  counters_.reserved_bytes += size;
  count_used(counters_.used_bytes + size);
  ++counters_.system_allocations;
  return block;
}

void* CachingAllocator::take_new(std::size_t size) {
  return counters_.reserved_bytes + scratch_->bytes() + size <= limit_ ? source_->allocate(size) : nullptr;
}

bool CachingAllocator::has_free() const {
  return std::ranges::any_of(pools_.at(0), [](const auto& of_size) { return !of_size.second.empty(); });
}

void CachingAllocator::free(Block block) {
  std::scoped_lock lock(mutex_);
  count_used(counters_.used_bytes - block.bytes);
  const auto pool = pools_.find(block.pool);
  auto& blocks = pool == pools_.end() ? pools_[0] : pool->second;
  blocks[block.bytes].push_back(std::move(block));
}

void CachingAllocator::count_used(std::size_t bytes) {
  counters_.used_bytes = bytes;
  counters_.peak_used_bytes = std::max(counters_.peak_used_bytes, bytes);
  used_bytes_->store(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

MemoryCounters CachingAllocator::counters() const {
  std::scoped_lock lock(mutex_);
  MemoryCounters counters = counters_;
  counters.scratch_bytes = scratch_->bytes();
  return counters;
}

std::shared_ptr<MemorySource> CachingAllocator::scratch() const { return scratch_; }

}  // namespace lockstep
