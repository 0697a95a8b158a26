#include "lockstep/tensor/caching_allocator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

class CachingAllocatorTest : public ::testing::Test {
 protected:
  // Holds up `lane` in a task that reads the block until go() is called.
  void hold(LaneId lane, const Block& block) {
    engine_->push({.name = "hold",
                   .lane = lane,
                   .reads = {block.resource},
                   .run = [open = go_.get_future().share()](const TaskContext&) { open.wait(); }});
  }
  void go() { go_.set_value(); }

  std::shared_ptr<Engine> engine_ = std::make_shared<Engine>();
  LaneId a_ = engine_->add_lane({.name = "a"}), b_ = engine_->add_lane({.name = "b"});
  CachingAllocator allocator_{engine_, "cpu:7", 4096};
  std::promise<void> go_;
};

TEST_F(CachingAllocatorTest, ASteadyLoopAllocatesNothing) {
  std::int64_t after_first = 0;
  for (int step = 0; step < 50; ++step) {
    std::vector<Block> blocks;
    for (std::size_t bytes : {100, 300, 300, 1000}) blocks.push_back(allocator_.allocate(bytes, a_));
    for (Block& block : blocks) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % 64, 0U);
      engine_->push({.name = "use", .lane = a_, .writes = {block.resource}, .run = [](const TaskContext&) {}});
      allocator_.free(block);
    }
    if (step == 0) after_first = allocator_.counters().system_allocations;
  }
  MemoryCounters counters = allocator_.counters();
  EXPECT_EQ(after_first, 4);
  EXPECT_EQ(counters.system_allocations, after_first);
  EXPECT_EQ(counters.used_bytes, 0U);
  EXPECT_EQ(counters.peak_used_bytes, counters.reserved_bytes);
}

TEST_F(CachingAllocatorTest, AtMostAQuarterIsWasted) {
  CachingAllocator allocator(engine_, "cpu:7", 1 << 24);
  for (std::size_t bytes = 257; bytes < 100'000; bytes = bytes * 5 / 4) {
    Block block = allocator.allocate(bytes, a_);
    EXPECT_GE(block.bytes, bytes);
    EXPECT_LE(block.bytes, bytes + bytes / 4 + 1);
    allocator.free(block);
  }
}

// A busy block goes to its own lane at once, which does it no harm, and to no other lane.
TEST_F(CachingAllocatorTest, BusyBlocksStayInTheirLane) {
  Block busy = allocator_.allocate(256, a_);
  hold(a_, busy);
  allocator_.free(busy);
  Block other = allocator_.allocate(256, b_);
  EXPECT_NE(other.data, busy.data);
  Block same = allocator_.allocate(256, a_);
  EXPECT_EQ(same.data, busy.data);
  go();
  allocator_.free(same);
  allocator_.free(other);
}

// The next user waits for who still reads the block.
TEST_F(CachingAllocatorTest, ABlockFreedWhileTasksUseItIsReusedAfterThem) {
  Block block = allocator_.allocate(256, a_);
  auto write = [&](LaneId lane, const Block& to, int value) {
    engine_->push(
        {.name = "write", .lane = lane, .writes = {to.resource}, .run = [data = to.data, value](const TaskContext&) {
           std::memset(data, value, 256);
         }});
  };
  write(a_, block, 1);
  hold(b_, block);
  unsigned char seen = 0;
  engine_->push(
      {.name = "read", .lane = b_, .reads = {block.resource}, .run = [&seen, data = block.data](const TaskContext&) {
         seen = static_cast<unsigned char*>(data)[200];
       }});
  allocator_.free(block);
  Block next = allocator_.allocate(256, a_);
  ASSERT_EQ(next.data, block.data);
  write(a_, next, 2);
  EXPECT_FALSE(engine_->unused(next.resource));
  go();
  engine_->wait_readable(next.resource);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(static_cast<unsigned char*>(next.data)[200], 2);
  allocator_.free(next);
}

TEST_F(CachingAllocatorTest, TheNextUserDoesNotInheritAFailure) {
  Block block = allocator_.allocate(256, a_);
  engine_->push({.name = "bad", .lane = a_, .writes = {block.resource}, .run = [](const TaskContext&) { fail("no"); }});
  EXPECT_THROW(engine_->wait_readable(block.resource), TaskError);
  allocator_.free(block);
  Block next = allocator_.allocate(256, a_);
  ASSERT_EQ(next.data, block.data);
  engine_->wait_readable(next.resource);
  allocator_.free(next);
}

TEST_F(CachingAllocatorTest, OutOfMemoryNamesWhoHoldsWhat) {
  Block block = allocator_.allocate(3000, a_);
  EXPECT_ERROR(allocator_.allocate(2000, a_),
               "cpu:7: out of memory: 2000 bytes requested, 3072 of at most 4096 are in use, 3072 of them "
               "held by tensors");
  allocator_.free(block);
}

// Their sum with what is in use would wrap.
TEST_F(CachingAllocatorTest, SizesThatCannotBeCountedAreOutOfMemory) {
  for (const std::size_t bytes : {~std::size_t{0}, ~std::size_t{0} / 2, ~std::size_t{0} - 100}) {
    EXPECT_ERROR(allocator_.allocate(bytes, a_), fmt::format("cpu:7: out of memory: {} bytes requested", bytes));
  }
}

// At the limit a busy block of another lane is better than none.
TEST_F(CachingAllocatorTest, AtTheLimitLanesShareBusyBlocks) {
  Block busy = allocator_.allocate(4096, a_);
  hold(a_, busy);
  allocator_.free(busy);
  Block next = allocator_.allocate(4000, b_);
  EXPECT_EQ(next.data, busy.data);
  EXPECT_FALSE(engine_->unused(next.resource));
  go();
  allocator_.free(next);
}

TEST_F(CachingAllocatorTest, AtTheLimitFreeBlocksOfOtherSizesAreGivenBack) {
  allocator_.free(allocator_.allocate(3000, a_));
  Block block = allocator_.allocate(2000, a_);
  EXPECT_EQ(allocator_.counters().reserved_bytes, 2048U);
  allocator_.free(block);
}

// While one thread gives blocks back, another that needs their memory waits for it.
TEST_F(CachingAllocatorTest, AtTheLimitThreadsWaitForBlocksThatAnotherGivesBack) {
  Block busy = allocator_.allocate(3000, a_);
  hold(a_, busy);
  allocator_.free(busy);
  const auto allocate = [this](std::size_t bytes) { return allocator_.allocate(bytes, b_); };
  std::future<Block> first = std::async(std::launch::async, allocate, 2000),
                     second = std::async(std::launch::async, allocate, 1500);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that both find the memory taken
  go();
  std::vector<Block> blocks;
  ASSERT_NO_THROW(blocks.push_back(first.get()));
  ASSERT_NO_THROW(blocks.push_back(second.get()));
  EXPECT_EQ(allocator_.counters().reserved_bytes, 2048U + 1536U);
  for (Block& block : blocks) allocator_.free(block);
}

// A source that has less than the limit, as a device that others use, too.
struct SmallSource final : MemorySource {
  static constexpr std::size_t kBytes = 3072;
  void* allocate(std::size_t bytes) override {
    if (taken + bytes > kBytes) return nullptr;
    taken += bytes;
    return allocate_pages(bytes);
  }
  void free(void* block, std::size_t bytes) noexcept override {
    taken -= bytes;
    free_pages(block, bytes);
  }
  std::optional<std::size_t> left() const override { return kBytes - taken; }
  std::size_t taken = 0;
};

TEST_F(CachingAllocatorTest, ASourceWithoutMoreIsALimit) {
  const auto source = std::make_shared<SmallSource>();
  {
    CachingAllocator allocator(engine_, "gpu:0", std::size_t{1} << 40, source);
    allocator.free(allocator.allocate(2000, a_));
    Block block = allocator.allocate(3000, a_);  // after giving back the other
    EXPECT_EQ(source->taken, 3072U);
    EXPECT_ERROR(allocator.allocate(512, a_),
                 "gpu:0: out of memory: 512 bytes requested, only the 3072 in use exist, 3072 of them held "
                 "by tensors; 0 are left for all users of this memory");
    allocator.free(block);
  }
  EXPECT_EQ(source->taken, 0U);
}

// Kernels' own memory is never refused for the limit, and leaves less for tensors.
TEST_F(CachingAllocatorTest, TheLimitCountsScratch) {
  allocator_.free(allocator_.allocate(4096, a_));
  const auto scratch = allocator_.scratch();
  void* taken = scratch->allocate(1000);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(allocator_.counters().scratch_bytes, 1000U);
  Block block = allocator_.allocate(3000, a_);  // after giving back the free one
  EXPECT_EQ(allocator_.counters().reserved_bytes, 3072U);
  EXPECT_ERROR(allocator_.allocate(256, a_),
               "cpu:7: out of memory: 256 bytes requested, 4072 of at most 4096 are in use, 3072 of them "
               "held by tensors, "
               "1000 by kernels");
  scratch->free(taken, 1000);
  EXPECT_EQ(allocator_.counters().scratch_bytes, 0U);
  allocator_.free(allocator_.allocate(256, a_));
  allocator_.free(block);
}

}  // namespace
}  // namespace lockstep
