#include "lockstep/base/adaptive_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(AdaptiveLock, KeepsThreadsApart) {
  AdaptiveLock lock;
  int count = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5000; ++i) {
          const std::lock_guard guard(lock);
          ++count;
        }
      });
    }
  }
  EXPECT_EQ(count, 20'000);
}

TEST(AdaptiveLock, WakesWhoeverSleeps) {
  AdaptiveLock lock;
  std::unique_lock guard(lock);
  EXPECT_FALSE(lock.try_lock());
  std::jthread other([&] { const std::lock_guard inner(lock); });
  std::this_thread::sleep_for(5ms);
  guard.unlock();
}

}  // namespace
}  // namespace lockstep
