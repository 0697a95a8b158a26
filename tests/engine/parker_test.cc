#include "lockstep/engine/parker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

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

TEST(Parker, GivesUpAtItsTimeLimitAndCanParkAgain) {
  SpinPolicy policy{.limit = 0us, .cores = 1, .awake = 1};
  Parker parker;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(parker.park(policy, 2ms));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 2ms);
  EXPECT_EQ(policy.awake, 1);
  parker.unpark();
  EXPECT_TRUE(parker.park(policy, 2ms));
}

// The time is up at about the moment of the unpark: whoever it is that comes first, nothing is lost.
TEST(Parker, AnUnparkAtTheTimeLimitIsNotLost) {
  SpinPolicy policy{.limit = 0us, .cores = 1, .awake = 2};
  for (int i = 0; i < 300; ++i) {
    Parker parker;
    std::jthread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(i % 100));
      parker.unpark();
    });
    while (!parker.park(policy, std::chrono::microseconds(50))) {
    }
  }
}

}  // namespace
}  // namespace lockstep
