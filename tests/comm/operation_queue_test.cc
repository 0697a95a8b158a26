#include "lockstep/comm/operation_queue.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

// The number of threads of this process.
int threads() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "Threads:") break;
  }
  int count = 0;
  status >> count;
  return count;
}

TEST(OperationQueue, WhoWaitsRunsItAndWakesNoThread) {
  auto queue = std::make_shared<OperationQueue>(false);
  const int before = threads();
  std::thread::id runner;
  queue->run([&] { runner = std::this_thread::get_id(); });
  EXPECT_EQ(runner, std::this_thread::get_id());
  EXPECT_EQ(threads(), before);
  EXPECT_THROW(queue->run([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_TRUE(queue->idle());
}

// Waiting threads take turns, and operations run in the order in which they were pushed.
TEST(OperationQueue, ManyWaitAtOnce) {
  for (bool may_spin : {false, true}) {
    auto queue = std::make_shared<OperationQueue>(may_spin);
    constexpr int kThreads = 4, kRounds = 300;
    int sum = 0, running = 0;  // never two operations at once
    const auto operation = [&] {
      EXPECT_EQ(++running, 1);
      ++sum;
      --running;
    };
    std::vector<std::thread> callers;
    for (int t = 0; t < kThreads; ++t) {
      callers.emplace_back([&, t] {
        for (int i = 0; i < kRounds; ++i) {
          int mine = 0;
          if ((t + i) % 3 == 0) queue->push([&operation] { operation(); });
          Work before = queue->push([&] { mine = 1; });
          queue->run([&] {
            EXPECT_EQ(mine, 1);
            operation();
          });
          EXPECT_TRUE(before.done());
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    queue->close();
    EXPECT_EQ(sum, kThreads * kRounds + kThreads * kRounds / 3);
  }
}

}  // namespace
}  // namespace lockstep
