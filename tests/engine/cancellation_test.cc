// Ending a run whose results nobody needs any more.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "lockstep/engine/engine.h"

namespace lockstep {
namespace {

using Context = const TaskContext&;

class Cancellation : public testing::Test {
 protected:
  Engine engine;
  LaneId a = engine.add_lane({.name = "a"}), b = engine.add_lane({.name = "b"});
  Resource x = engine.make_resource(), y = engine.make_resource();
  std::promise<void> started, go;
  std::atomic<int> ran = 0;

  // Returns when the task runs; it ends with go.
  void push_held(const Resource& writes) {
    engine.push({.name = "held", .lane = a, .writes = {writes}, .run = [this](Context) {
                   started.set_value();
                   go.get_future().wait();
                   ++ran;
                 }});
    started.get_future().wait();
  }
  void push(LaneId lane, Resources reads, Resources writes) {
    engine.push(
        {.name = "t", .lane = lane, .reads = std::move(reads), .writes = std::move(writes), .run = [this](Context) {
           ++ran;
         }});
  }
};

TEST_F(Cancellation, WhatRunsFinishesAndTheRestIsSkipped) {
  push_held(x);
  for (int i = 0; i < 100; ++i) push(i % 2 ? a : b, {x}, {y});
  engine.cancel_pending("the run was interrupted");
  go.set_value();
  engine.wait_readable(x);  // had started
  try {
    engine.wait_readable(y);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CancelledError& error) {
    EXPECT_STREQ(error.what(), "cancelled: the run was interrupted");
    EXPECT_THROW(std::rethrow_exception(error.cause()), Error);
  }
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(engine.counters().skipped, 100);
  EXPECT_EQ(engine.counters().failed, 0);
}

TEST_F(Cancellation, IsNoFailureForWaitAll) {
  push_held(x);
  push(a, {}, {y});
  engine.cancel_pending("enough");
  go.set_value();
  engine.wait_all();
  EXPECT_EQ(engine.failure(y)->message, "cancelled: enough");
}

TEST_F(Cancellation, WhatIsPushedLaterRunsOnDataWrittenAnew) {
  push_held(x);
  push(a, {}, {y});
  engine.cancel_pending("enough");
  push(b, {y}, {x});  // needs what will not come
  push(a, {}, {y});
  push(b, {y}, {x});
  go.set_value();
  engine.wait_readable(x);
  EXPECT_EQ(ran, 3);
}

TEST_F(Cancellation, LeavesOldDataWhole) {
  push(a, {}, {y});
  engine.wait_readable(y);
  push_held(x);
  push(a, {}, {y});
  engine.cancel_pending("enough");
  go.set_value();
  EXPECT_THROW(engine.wait_readable(y), CancelledError);
  EXPECT_TRUE(engine.forgive(y));
  engine.wait_readable(y);
}

TEST_F(Cancellation, AnEarlierFailureIsNamedFirst) {
  push_held(x);
  engine.push({.name = "bad", .lane = b, .writes = {y}, .run = [](Context) { fail("bad"); }});
  EXPECT_THROW(engine.wait_readable(y), TaskError);
  push(a, {y}, {y});
  engine.cancel_pending("enough");
  go.set_value();
  try {
    engine.wait_readable(y);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const TaskError& error) {
    EXPECT_EQ(error.task(), "bad");
  }
}

TEST_F(Cancellation, DestroysTheClosuresOfCancelledTasks) {
  const auto token = std::make_shared<int>(0);
  push_held(x);
  engine.push({.name = "t", .lane = a, .writes = {y}, .run = [token](Context) {}});
  engine.cancel_pending("enough");
  go.set_value();
  EXPECT_THROW(engine.wait_readable(y), CancelledError);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(Cancellation, MayComeFromATask) {
  engine.push({.name = "watchdog", .lane = a, .writes = {x}, .run = [this](Context) {
                 started.get_future().wait();
                 engine.cancel_pending("the watchdog bit");
               }});
  push(b, {x}, {y});
  started.set_value();
  EXPECT_THROW(engine.wait_readable(y), CancelledError);
}

TEST_F(Cancellation, LetsAPusherGoThatWaitsForRoom) {
  Engine full({.max_pending_tasks = 4});
  const LaneId lane = full.add_lane({.name = "a"});
  full.push({.name = "held", .lane = lane, .run = [this](Context) {
               started.set_value();
               go.get_future().wait();
             }});
  started.get_future().wait();
  std::jthread host([&] {
    for (int i = 0; i < 20; ++i) full.push({.name = "t", .lane = lane, .run = [](Context) {}});
  });
  while (full.counters().pushed < 4) std::this_thread::yield();
  full.cancel_pending("enough");
  go.set_value();
  host.join();
  full.wait_all();
  EXPECT_EQ(full.counters().completed, 21);
  EXPECT_GE(full.counters().skipped, 3);
}

TEST(CancellationOfSerialEngine, HasNothingPending) {
  Engine engine({.serial = true});
  const LaneId a = engine.add_lane({.name = "a"});
  const Resource x = engine.make_resource();
  engine.push({.name = "t", .lane = a, .writes = {x}, .run = [](Context) {}});
  engine.cancel_pending("enough");
  engine.wait_readable(x);
}

}  // namespace
}  // namespace lockstep
