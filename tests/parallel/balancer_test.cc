#include "lockstep/parallel/balancer.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/task.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/runtime/device_state.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

using Seconds = std::vector<double>;

// The steps in which it decides on other shares, and these.
std::vector<std::pair<int, std::vector<int>>> changes(Balancer& balancer, int steps) {
  std::vector<std::pair<int, std::vector<int>>> changes;
  for (int step = 1; step <= steps; ++step) {
    if (balancer.step()) changes.emplace_back(step, balancer.shares().all());
  }
  return changes;
}

TEST(Balancer, FollowsTheSpeedEvery20Steps) {
  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1});
  Seconds seconds{1, 1};
  Balancer balancer(runtime.devices(), 16, {.seconds_per_shard = [&] { return seconds; }});
  EXPECT_EQ(balancer.own_shares(), (std::vector<int>{8, 8}));
  EXPECT_TRUE(changes(balancer, 45).empty());
  // Slowed in the middle.
  seconds = {1, 2};
  EXPECT_EQ(changes(balancer, 55), (std::vector<std::pair<int, std::vector<int>>>{{15, {11, 5}}}));
  EXPECT_EQ(balancer.own_shares(), (std::vector<int>{11, 5}));
  seconds = {1, 1};
  EXPECT_EQ(changes(balancer, 20), (std::vector<std::pair<int, std::vector<int>>>{{20, {8, 8}}}));
}

TEST(Balancer, RanksDecideAlike) {
  expect_fine(run_ranks(3, [](Rank& r) {
    // Rank 1 has two devices, of which the second one is fast.
    Runtime runtime({.cpu_devices = r.rank() == 1 ? 2 : 1, .cores_per_device = 1});
    const JobShares equal(12, std::vector{1, 2, 1});
    const Seconds mine = r.rank() == 1 ? Seconds{0.2, 0.05} : Seconds{0.1};
    Balancer balancer(runtime.devices(), equal, r.communicator, {.seconds_per_shard = [&] { return mine; }});
    EXPECT_EQ(balancer.shares(), JobShares({{4}, {2, 2}, {4}}));
    EXPECT_EQ(changes(balancer, 40).size(), 1u);
    EXPECT_EQ(balancer.shares(), JobShares({{3}, {1, 5}, {3}}));
  }));
}

TEST(Balancer, MeasuresWhatDevicesComputeAndNothingElse) {
  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
  const std::vector<Device>& devices = runtime.devices();
  Balancer balancer(devices, 16);
  const auto work = [&](std::size_t device, std::chrono::milliseconds time) {
    DeviceState& state = state_of(devices[device], "test");
    state.engine->push({.name = "work", .lane = state.compute_lanes[0], .run = [time](const TaskContext&) {
                          std::this_thread::sleep_for(time);
                        }});
  };
  std::vector<std::pair<int, std::vector<int>>> found;
  for (int step = 1; step <= 20; ++step) {
    // One device works, and once, in an evaluation, the other one for much longer.
    work(1, std::chrono::milliseconds(10));
    if (balancer.step()) found.emplace_back(step, balancer.shares().all());
    if (step != 10) continue;
    balancer.pause();
    work(0, std::chrono::milliseconds(500));
    balancer.resume();
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 20);
  EXPECT_GT(found[0].second[0], 8);
}

TEST(Balancer, RefusesWhatItCannotShare) {
  Runtime runtime({.cpu_devices = 3, .cores_per_device = 1});
  EXPECT_ERROR(Balancer(runtime.devices(), 2), "2 shards for 3 devices, expected at least one for each");
  EXPECT_ERROR(Balancer(runtime.devices(), 8, {.every = 0}), "0 steps between decisions, expected at least 1");
  EXPECT_ERROR(Balancer(runtime.devices(), JobShares({{4, 4}}), nullptr), "expected those of 3 devices");
  Balancer wrong(runtime.devices(), 8, {.every = 1, .seconds_per_shard = [] { return Seconds{1, 2}; }});
  EXPECT_ERROR(wrong.step(), "seconds of 2 devices, expected 3");
}

}  // namespace
}  // namespace lockstep
