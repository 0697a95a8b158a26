#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/backend/cpu/parallel_for.h"
#include "lockstep/base/error.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

KernelContext context(int threads) { return KernelContext(threads); }

TEST(ParallelForTest, ChunksDependOnTheSizeAlone) {
  using Chunks = std::set<std::pair<std::int64_t, std::int64_t>>;
  for (int threads : {1, 2, 3, 8}) {
    std::mutex mutex;
    Chunks chunks;
    parallel_for(context(threads), 10, 4, [&](std::int64_t begin, std::int64_t end) {
      std::lock_guard lock(mutex);
      EXPECT_TRUE(chunks.emplace(begin, end).second);
    });
    EXPECT_EQ(chunks, (Chunks{{0, 4}, {4, 8}, {8, 10}}));
  }
}

TEST(ParallelForTest, NothingToDo) {
  for (int threads : {1, 2}) {
    parallel_for(context(threads), 0, 4, [](std::int64_t, std::int64_t) { FAIL(); });
  }
}

TEST(ParallelForTest, OneThreadIsTheCaller) {
  const auto caller = std::this_thread::get_id();
  parallel_for(context(1), 100, 1, [&](std::int64_t, std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ParallelForTest, TheFirstErrorLeavesTheRegion) {
  for (int threads : {1, 2, 3}) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      EXPECT_ERROR(parallel_for(context(threads), 100, 10,
                                [](std::int64_t begin, std::int64_t) { check(begin < 30, "chunk {}", begin); }),
                   "chunk 30");
    }
  }
}

}  // namespace
}  // namespace lockstep
