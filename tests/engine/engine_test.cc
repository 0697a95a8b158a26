#include "lockstep/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <future>
#include <latch>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

using Context = const TaskContext&;

// The message that `call` throws, or "nothing".
template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

// The rules that hold for both engines.
class EngineRules : public testing::TestWithParam<bool> {
 protected:
  Engine engine{{.serial = GetParam()}};
  LaneId a = engine.add_lane({.name = "compute 0", .device = "cpu:0"});
  LaneId b = engine.add_lane({.name = "compute 0", .device = "cpu:1"});
  Resource x = engine.make_resource(), y = engine.make_resource();
};
INSTANTIATE_TEST_SUITE_P(Engines, EngineRules, testing::Bool(),
                         [](const auto& info) { return info.param ? "Serial" : "Threaded"; });

TEST_P(EngineRules, OrderOfPushingIsOrderOfEffect) {
  std::int64_t v = 0, w = 0;
  for (int i = 0; i < 1000; ++i) {
    engine.push({.name = "v", .lane = a, .reads = {y}, .writes = {x}, .run = [&](Context) { v = w + 1; }});
    engine.push({.name = "w", .lane = b, .reads = {x}, .writes = {y}, .run = [&](Context) { w = 2 * v % 1009; }});
  }
  engine.wait_readable(y);
  std::int64_t expected = 0;
  for (int i = 0; i < 1000; ++i) expected = 2 * (expected + 1) % 1009;
  EXPECT_EQ(w, expected);
}

TEST_P(EngineRules, TasksLearnTheirLaneAndItsData) {
  int data = 0;
  const LaneId c = engine.add_lane({.name = "c", .lane_data = &data});
  engine.push({.name = "t", .lane = c, .run = [&](Context context) {
                 EXPECT_EQ(context.lane, c);
                 *static_cast<int*>(context.lane_data) = 7;
               }});
  engine.wait_all();
  EXPECT_EQ(data, 7);
}

TEST_P(EngineRules, AFailureNamesTaskDeviceAndLaneAtEveryWait) {
  engine.push({.name = "relu", .lane = b, .writes = {x}, .run = [](Context) { fail("no {}", "luck"); }});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(error_of([&] { engine.wait_readable(x); }), "relu on cpu:1 compute 0: no luck");
  }
  try {
    engine.wait_readable(x);
  } catch (const TaskError& error) {
    EXPECT_EQ(error.task(), "relu");
    EXPECT_THROW(std::rethrow_exception(error.failure().cause), Error);
  }
  EXPECT_EQ(engine.failure(x)->task, "relu");
}

TEST_P(EngineRules, AnythingMayBeThrown) {
  engine.push({.name = "odd", .lane = a, .writes = {x}, .run = [](Context) { throw 7; }});
  EXPECT_EQ(error_of([&] { engine.wait_readable(x); }),
            "odd on cpu:0 compute 0: an exception that is not a std::exception");
}

TEST_P(EngineRules, WhoReadsFailedDataIsSkippedWithTheFirstError) {
  bool ran = false;
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [](Context) { fail("bad"); }});
  engine.push({.name = "next", .lane = b, .reads = {x}, .writes = {y}, .run = [&](Context) { ran = true; }});
  EXPECT_EQ(error_of([&] { engine.wait_readable(y); }), "bad on cpu:0 compute 0: bad");
  EXPECT_FALSE(ran);
  EXPECT_EQ(engine.counters().failed, 1);
  EXPECT_EQ(engine.counters().skipped, 1);
  EXPECT_EQ(engine.counters().completed, 2);
}

TEST_P(EngineRules, OverwritingEndsAFailure) {
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [](Context) { fail("bad"); }});
  engine.push({.name = "good", .lane = b, .writes = {x}, .run = [](Context) {}});
  engine.wait_readable(x);
  EXPECT_EQ(engine.failure(x), nullptr);
}

TEST_P(EngineRules, ForgivesSkippedWritesAndNotTornOnes) {
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [](Context) { fail("bad"); }});
  engine.push({.name = "next", .lane = b, .reads = {x}, .writes = {y}, .run = [](Context) {}});
  EXPECT_FALSE(engine.forgive(x));
  EXPECT_THROW(engine.wait_readable(x), TaskError);
  EXPECT_TRUE(engine.forgive(y));
  engine.wait_readable(y);
}

TEST_P(EngineRules, WaitAllThrowsEachUnseenFailureOnceInOrderOfPushing) {
  for (const char* name : {"one", "two", "three"}) {
    engine.push({.name = name, .lane = a, .writes = {*name == 't' ? x : y}, .run = [](Context) { fail("bad"); }});
  }
  EXPECT_THAT(error_of([&] { engine.wait_readable(y); }), HasSubstr("one on"));
  EXPECT_THAT(error_of([&] { engine.wait_all(); }), HasSubstr("two on"));
  EXPECT_THAT(error_of([&] { engine.wait_all(); }), HasSubstr("three on"));
  EXPECT_EQ(error_of([&] { engine.wait_all(); }), "nothing");
  EXPECT_THAT(error_of([&] { engine.wait_readable(x); }), HasSubstr("three on"));
}

TEST_P(EngineRules, WaitUnusedThrowsNothing) {
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [](Context) { fail("bad"); }});
  engine.wait_unused(x);
  EXPECT_TRUE(engine.unused(x));
}

TEST_P(EngineRules, WaitingAndPushingInsideATaskAreErrors) {
  std::vector<std::string> errors;
  engine.push({.name = "outer", .lane = a, .writes = {x}, .run = [&](Context) {
                 errors.push_back(error_of([&] { engine.wait_readable(y); }));
                 errors.push_back(error_of([&] { engine.wait_unused(y); }));
                 errors.push_back(error_of([&] { engine.wait_all(); }));
                 errors.push_back(error_of([&] { engine.forgive(y); }));
                 errors.push_back(error_of([&] { engine.add_lane({.name = "inner"}); }));
                 errors.push_back(error_of([&] { engine.push({.name = "inner", .lane = b, .run = [](Context) {}}); }));
               }});
  engine.wait_all();
  EXPECT_THAT(errors, ElementsAre("wait_readable: called inside task outer", "wait_unused: called inside task outer",
                                  "wait_all: called inside task outer", "forgive: called inside task outer",
                                  "add_lane: called inside task outer", "push: called inside task outer"));
  EXPECT_EQ(engine.counters().pushed, 1);
}

TEST_P(EngineRules, ATaskMayAskAndMakeResources) {
  engine.push({.name = "t", .lane = a, .writes = {x}, .run = [&](Context) {
                 EXPECT_FALSE(engine.unused(x));
                 EXPECT_TRUE(engine.unused(y));
                 EXPECT_FALSE(engine.unused(engine.make_successor(x)));
                 EXPECT_EQ(engine.failure(y), nullptr);
               }});
  engine.wait_readable(x);
}

TEST_P(EngineRules, ClosuresAreGoneWhenAWaitReturns) {
  const auto token = std::make_shared<int>(0);
  engine.push({.name = "done", .lane = a, .writes = {x}, .run = [token](Context) {}});
  engine.wait_readable(x);
  EXPECT_EQ(token.use_count(), 1);
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [token](Context) { fail("bad"); }});
  engine.push({.name = "skipped", .lane = b, .reads = {x}, .writes = {y}, .run = [token](Context) {}});
  EXPECT_THROW(engine.wait_readable(y), TaskError);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_P(EngineRules, WrongUseIsAnError) {
  Engine other;
  const Resource foreign = other.make_resource();
  EXPECT_EQ(error_of([&] { engine.wait_readable(foreign); }), "wait_readable: the resource belongs to another engine");
  EXPECT_EQ(error_of([&] { engine.wait_unused(Resource()); }), "wait_unused: the resource is empty");
  EXPECT_EQ(error_of([&] { engine.push({.name = "t", .lane = {9}, .run = [](Context) {}}); }),
            "push: task t names lane 9, the engine has 2");
  EXPECT_EQ(error_of([&] { engine.lane_name({2}); }), "lane_name: there is no lane 2, the engine has 2");
  EXPECT_EQ(error_of([] { Engine none({.max_pending_tasks = 0}); }), "engine: max_pending_tasks is 0");
}

TEST_P(EngineRules, TellsAboutItself) {
  EXPECT_EQ(engine.lane_count(), 2);
  EXPECT_EQ(engine.lane_name(b), "cpu:1 compute 0");
  EXPECT_EQ(engine.options().serial, GetParam());
  EXPECT_EQ(engine.pending_report(), "");
}

TEST_P(EngineRules, CountsByLane) {
  for (int i = 0; i < 3; ++i) {
    engine.push({.name = "t", .lane = b, .run = [](Context) { std::this_thread::sleep_for(5ms); }});
  }
  engine.wait_all();
  const std::vector<LaneCounters> lanes = engine.lane_counters();
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[1].device, "cpu:1");
  EXPECT_EQ(lanes[1].name, "compute 0");
  EXPECT_EQ(lanes[1].completed, 3);
  EXPECT_EQ(lanes[1].queued, 0);
  EXPECT_GE(lanes[1].busy, 15ms);
  EXPECT_EQ(lanes[0].completed, 0);
  EXPECT_LT(lanes[0].busy, 15ms);
}

TEST_P(EngineRules, ManyThreadsMayPush) {
  constexpr int kThreads = 4, kTasks = 2000;
  std::int64_t sum = 0;  // guarded by x
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kTasks; ++i) {
          engine.push(
              {.name = "add", .lane = t % 2 ? a : b, .reads = {x}, .writes = {x}, .run = [&](Context) { ++sum; }});
          if (i % 100 == 0) engine.wait_readable(x);
        }
      });
    }
  }
  engine.wait_all();
  EXPECT_EQ(sum, kThreads * kTasks);
}

// Tests that need workers.
class ThreadedEngine : public testing::Test {
 protected:
  Engine engine;
  LaneId a = engine.add_lane({.name = "a"}), b = engine.add_lane({.name = "b"});
  Resource x = engine.make_resource(), y = engine.make_resource();
};

TEST_F(ThreadedEngine, ReadersRunAtTheSameTime) {
  // Neither ends before the other one has begun.
  std::barrier meet(2);
  engine.push({.name = "w", .lane = a, .writes = {x}, .run = [](Context) {}});
  for (const LaneId lane : {a, b}) {
    engine.push({.name = "r", .lane = lane, .reads = {x}, .run = [&](Context) { meet.arrive_and_wait(); }});
  }
  engine.wait_all();
}

TEST_F(ThreadedEngine, AWriterWaitsForReadersOfOtherLanes) {
  std::promise<void> go;
  std::atomic<bool> wrote = false;
  engine.push({.name = "r", .lane = a, .reads = {x}, .run = [&](Context) {
                 go.get_future().wait();
                 EXPECT_FALSE(wrote);
               }});
  engine.push({.name = "w", .lane = b, .writes = {x}, .run = [&](Context) { wrote = true; }});
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(wrote);
  EXPECT_EQ(engine.pending_report(),
            "a: r is running or about to run\n"
            "b: w waits for r on a\n");
  go.set_value();
  engine.wait_unused(x);
  EXPECT_TRUE(wrote);
}

TEST_F(ThreadedEngine, PushReturnsBeforeTheTaskRuns) {
  std::promise<void> go;
  engine.push({.name = "t", .lane = a, .writes = {x}, .run = [&](Context) { go.get_future().wait(); }});
  EXPECT_FALSE(engine.unused(x));
  go.set_value();
  engine.wait_all();
}

TEST_F(ThreadedEngine, WaitReadableDoesNotWaitForReaders) {
  std::promise<void> go;
  engine.push({.name = "w", .lane = a, .writes = {x}, .run = [](Context) {}});
  engine.push({.name = "r", .lane = b, .reads = {x}, .run = [&](Context) { go.get_future().wait(); }});
  engine.wait_readable(x);
  go.set_value();
  engine.wait_unused(x);
}

TEST_F(ThreadedEngine, ASuccessorsFirstUserWaitsForTheOldOnesLastUser) {
  std::promise<void> go;
  int memory = 1, seen = 0;
  engine.push({.name = "old", .lane = a, .reads = {x}, .run = [&](Context) {
                 go.get_future().wait();
                 seen = memory;
               }});
  Resource fresh = engine.make_successor(x);
  x = {};
  engine.push({.name = "new", .lane = b, .writes = {fresh}, .run = [&](Context) { memory = 2; }});
  EXPECT_EQ(engine.pending_report(),
            "a: old is running or about to run\n"
            "b: new waits for old on a\n");
  go.set_value();
  engine.wait_readable(fresh);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(memory, 2);
}

TEST_F(ThreadedEngine, ASuccessorsFirstUserWaitsEvenIfItOnlyReads) {
  std::promise<void> go;
  int memory = 1;
  engine.push({.name = "old", .lane = a, .writes = {x}, .run = [&](Context) {
                 go.get_future().wait();
                 memory = 2;
               }});
  const Resource fresh = engine.make_successor(x);
  engine.push({.name = "new", .lane = b, .reads = {fresh}, .run = [&](Context) { EXPECT_EQ(memory, 2); }});
  EXPECT_EQ(engine.pending_report(),
            "a: old is running or about to run\n"
            "b: new waits for the last users of its memory\n");
  go.set_value();
  engine.wait_all();
}

TEST_F(ThreadedEngine, TheReportIsBounded) {
  std::promise<void> go;
  engine.push({.name = "t", .lane = a, .run = [&](Context) { go.get_future().wait(); }});
  for (const char* name : {"u", "v", "w", "z"}) engine.push({.name = name, .lane = a, .run = [](Context) {}});
  EXPECT_EQ(engine.lane_counters()[a.index].queued, 5);
  EXPECT_EQ(engine.pending_report(3), "a: t is running or about to run; then u, v and 2 more\n");
  go.set_value();
  engine.wait_all();
}

TEST(Engine, TheHostRunsAheadNoFurtherThanAllowed) {
  constexpr int kMost = 10;
  Engine engine({.max_pending_tasks = kMost});
  const LaneId a = engine.add_lane({.name = "a"});
  std::promise<void> go;
  engine.push({.name = "first", .lane = a, .run = [&](Context) { go.get_future().wait(); }});
  std::atomic<int> pushed = 1;
  std::jthread host([&] {
    for (; pushed < 3 * kMost; ++pushed) engine.push({.name = "t", .lane = a, .run = [](Context) {}});
  });
  while (pushed < kMost) std::this_thread::yield();
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(pushed, kMost);
  go.set_value();
  host.join();
  engine.wait_all();
  EXPECT_EQ(engine.counters().completed, 3 * kMost);
}

TEST(Engine, AWorkerIsBoundAndNamed) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &mine)) --last;
  std::thread::id ran;
  Engine engine;
  const LaneId a = engine.add_lane({.name = "compute 0", .device = "cpu:0", .cpus = {last}});
  std::string name(16, '\0');
  engine.push({.name = "t", .lane = a, .run = [&](Context) {
                 ran = std::this_thread::get_id();
                 EXPECT_EQ(sched_getcpu(), last);
                 pthread_getname_np(pthread_self(), name.data(), name.size());
               }});
  engine.wait_all();
  EXPECT_NE(ran, std::this_thread::get_id());
  EXPECT_STREQ(name.c_str(), "cpu:0 compute 0");
}

TEST(Engine, ALaneThatCannotStartIsAnErrorAndNoLane) {
  Engine engine;
  EXPECT_EQ(error_of([&] { engine.add_lane({.name = "a", .cpus = {CPU_SETSIZE - 1}}); }),
            fmt::format("add_lane: a: the process may not use all of cpus {}", CPU_SETSIZE - 1));
  EXPECT_EQ(error_of([&] { engine.add_lane({.name = "a", .cpus = {-1}}); }), "add_lane: a: there is no cpu -1");
  EXPECT_EQ(engine.lane_count(), 0);
}

TEST(Engine, TheSerialEngineRunsEachTaskInsidePush) {
  Engine engine({.serial = true});
  const LaneId a = engine.add_lane({.name = "a"});
  std::thread::id ran;
  engine.push({.name = "t", .lane = a, .run = [&](Context) { ran = std::this_thread::get_id(); }});
  EXPECT_EQ(ran, std::this_thread::get_id());
}

}  // namespace
}  // namespace lockstep
