#include "lockstep/engine/parker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/engine/adaptive_lock.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(Parker, AnUnparkThatComesFirstIsNotLost) {
  SpinPolicy policy;
  Parker parker;
  parker.unpark();
  parker.park(policy);
}

// Two threads hand a number to and fro: lost wake-ups hang, missing fences spoil the count.
void hand_over(SpinPolicy& policy, int rounds) {
  Parker ping, pong;
  int number = 0;
  std::jthread other([&] {
    for (int i = 0; i < rounds; ++i) {
      ping.park(policy);
      ++number;
      pong.unpark();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    ++number;
    ping.unpark();
    pong.park(policy);
  }
  EXPECT_EQ(number, 2 * rounds);
}

TEST(Parker, HandsOverBetweenSleepingThreads) {
  SpinPolicy policy{.limit = 0us, .cores = 1, .awake = 2};
  EXPECT_FALSE(policy.core_to_spare());
  hand_over(policy, 500);
  EXPECT_EQ(policy.awake, 2);
}

TEST(Parker, HandsOverBetweenSpinningThreads) {
  SpinPolicy policy{.limit = 50us, .cores = 2, .awake = 2};
  EXPECT_TRUE(policy.core_to_spare());
  hand_over(policy, 5000);
  EXPECT_EQ(policy.awake, 2);
}

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
