#include "lockstep/engine/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/engine.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(ThreadTeam, ComputesEachPartOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    for (int parts : {0, 1, 2, 3, 50}) {
      std::vector<std::atomic<int>> calls(50);
      for (int repetition = 0; repetition < 200; ++repetition) {
        team.run(parts, [&](int part) { ++calls[static_cast<std::size_t>(part)]; });
      }
      for (int part = 0; part < 50; ++part) EXPECT_EQ(calls[static_cast<std::size_t>(part)], part < parts ? 200 : 0);
    }
  }
}

// Each loop sees the writes of the one before, on any thread.
TEST(ThreadTeam, PartsSeeWhatTheLoopBeforeWrote) {
  ThreadTeam team(3);
  std::vector<int> values(6);
  for (int loop = 0; loop < 2000; ++loop) {
    team.run(6, [&](int part) { EXPECT_EQ(values[static_cast<std::size_t>(5 - part)], loop); });
    team.run(6, [&](int part) { ++values[static_cast<std::size_t>(part)]; });
  }
}

// Each part waits for the other one.
TEST(ThreadTeam, HelpersComputeBesideTheWorker) {
  ThreadTeam team(2);
  for (int loop = 0; loop < 20; ++loop) {
    std::atomic<int> begun = 0;
    std::atomic<bool> met = true;
    team.run(2, [&](int) {
      ++begun;
      const auto end = std::chrono::steady_clock::now() + 20s;
      while (begun < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      if (begun < 2) met = false;
    });
    EXPECT_TRUE(met);
    std::this_thread::sleep_for(1ms);  // the helper sleeps in between
  }
}

// The worker falls asleep beside a helper that takes long.
TEST(ThreadTeam, WaitsForALongPart) {
  ThreadTeam team(2);
  const auto worker = std::this_thread::get_id();
  std::atomic<int> computed = 0;
  for (int loop = 0; loop < 10; ++loop) {
    team.run(4, [&](int) {
      std::this_thread::sleep_for(std::this_thread::get_id() == worker ? 1ms : 5ms);
      ++computed;
    });
    EXPECT_EQ(computed, 4 * (loop + 1));
  }
}

TEST(ThreadTeam, ThrowsTheExceptionOfTheFirstPart) {
  ThreadTeam team(3);
  for (int loop = 0; loop < 50; ++loop) {
    EXPECT_ERROR(team.run(20, [](int part) { check(part < 7, "part {}", part); }), "part 7");
  }
  std::atomic<int> calls = 0;
  team.run(20, [&](int) { ++calls; });
  EXPECT_EQ(calls, 20);
}

TEST(ThreadTeam, RunsInARegionOfAnotherLibrary) {
  ThreadTeam team(3);
  static int regions;
  regions = 0;
  team.use(
      [](int threads, int parts, void (*call)(void*, int), void* state) {
        EXPECT_EQ(threads, 3);
        ++regions;
        for (int part = parts - 1; part >= 0; --part) call(state, part);
      },
      3);
  int calls = 0;
  team.run(5, [&](int) { ++calls; });
  EXPECT_EQ(calls, 5);
  EXPECT_ERROR(team.run(5, [](int part) { check(part < 2, "part {}", part); }), "part 2");
  EXPECT_EQ(regions, 2);
}

// Two threads with a team each share the helpers.
TEST(ThreadTeam, TeamsShareAPool) {
  const auto busy = std::make_shared<std::atomic<int>>(2);
  ThreadTeam* teams[2] = {};
  std::unique_ptr<ThreadTeam> owners[2];
  HelperPool pool(3, busy);
  for (int i = 0; i < 2; ++i) teams[i] = (owners[i] = std::make_unique<ThreadTeam>(pool)).get();
  std::vector<std::thread> workers;
  for (ThreadTeam* team : teams) {
    workers.emplace_back([team] {
      std::vector<std::atomic<int>> calls(20);
      for (int loop = 0; loop < 500; ++loop) team->run(20, [&](int part) { ++calls[static_cast<std::size_t>(part)]; });
      for (const auto& count : calls) EXPECT_EQ(count, 500);
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST(ThreadTeam, HelpersTakeOnlyCoresThatNoLaneNeeds) {
  const auto busy = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<ThreadTeam> team;
  HelperPool pool(3, busy);
  team = std::make_unique<ThreadTeam>(pool);
  for (const auto& [lanes, width] : {std::pair(1, 4), {2, 2}, {3, 2}, {4, 1}, {5, 1}}) {
    *busy = lanes;
    EXPECT_EQ(pool.width(), width) << lanes;
  }
  // All cores have a lane: the worker computes every part.
  *busy = 4;
  const auto worker = std::this_thread::get_id();
  for (int loop = 0; loop < 20; ++loop) {
    team->run(8, [&](int) {
      EXPECT_EQ(std::this_thread::get_id(), worker);
      std::this_thread::sleep_for(100us);
    });
  }
}

// Helpers use their engine's policy, so the engine outlives the team.
TEST(ThreadTeam, ComputesInTasks) {
  Engine engine;
  ThreadTeam team(2);
  std::atomic<int> calls = 0;
  const LaneId lane = engine.add_lane({.name = "compute"});
  for (int i = 0; i < 100; ++i) {
    engine.push({.name = "loop", .lane = lane, .run = [&](const TaskContext&) { team.run(4, [&](int) { ++calls; }); }});
  }
  engine.wait_all();
  EXPECT_EQ(calls, 400);
}

}  // namespace
}  // namespace lockstep
