#include "lockstep/parallel/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <thread>

#include "lockstep/engine/task.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

// All threads are the first to need them.
TEST(Communicator, AloneThreadsShareItsGroupAndLanes) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  for (int round = 0; round < 8; ++round) {
    Communicator communicator(runtime.devices());
    constexpr std::size_t kThreads = 4;
    std::array<ProcessGroup*, kThreads> groups{};
    std::array<std::shared_ptr<ProcessGroup>, kThreads> own;
    std::array<int, kThreads> urgent{}, bulk{};
    std::array<Array, kThreads> written;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        groups[i] = &communicator.group();
        urgent[i] = communicator.lane(CommChannel::urgent).index;
        written[i] = ops::empty({1}, DType::i64, runtime.devices()[0]);
        communicator.push("write", CommChannel::bulk, {}, std::array{written[i]},
                          [view = written[i].view(), i](auto&) { *view.as<std::int64_t>() = static_cast<int>(i); });
        bulk[i] = communicator.lane(CommChannel::bulk).index;
        own[i] = communicator.make_group();
        EXPECT_TRUE(communicator.alone());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set(groups.begin(), groups.end()).size(), 1U);
    EXPECT_EQ(std::set(urgent.begin(), urgent.end()).size(), 1U);
    EXPECT_EQ(std::set(bulk.begin(), bulk.end()).size(), 1U);
    EXPECT_NE(urgent[0], bulk[0]);
    EXPECT_EQ(std::set(own.begin(), own.end()).size(), kThreads);
    for (std::size_t i = 0; i < kThreads; ++i)
      EXPECT_EQ(Tensor(written[i]).item<std::int64_t>(), static_cast<std::int64_t>(i));
  }
}

}  // namespace
}  // namespace lockstep
