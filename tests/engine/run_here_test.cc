// Tasks that a thread runs itself, without handing them to a lane.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "lockstep/engine/engine.h"
#include "lockstep/engine/trace.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

class RunHere : public ::testing::Test {
 protected:
  // Whether the engine left the task to the thread, which then has run it.
  bool run(
      Resources reads, Resources writes, TaskFunction f = [](const TaskContext&) {}) {
    Task task{
        .name = "here", .lane = lane_, .reads = std::move(reads), .writes = std::move(writes), .run = std::move(f)};
    return engine_.run_here(task, this);
  }

  Engine engine_;
  const LaneId lane_ = engine_.add_lane({.name = "a"});
  const Resource x_ = engine_.make_resource(), y_ = engine_.make_resource();
};

TEST_F(RunHere, TakesItsOwnLaneDataAndThread) {
  void* data = nullptr;
  std::thread::id thread;
  EXPECT_TRUE(run({}, {x_}, [&](const TaskContext& c) { data = c.lane_data, thread = std::this_thread::get_id(); }));
  EXPECT_EQ(data, this);
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_EQ(engine_.counters().pushed, 0);
}

TEST_F(RunHere, WaitsForWritersOfWhatItReadsAndForUsersOfWhatItWrites) {
  std::atomic<bool> go{false};
  std::atomic<int> done{0};
  const auto slow = [&](const TaskContext&) {
    go.wait(false);
    ++done;
  };
  engine_.push({.name = "write x", .lane = lane_, .writes = {x_}, .run = slow});
  engine_.push({.name = "read y", .lane = lane_, .reads = {y_}, .run = slow});
  std::thread later([&] {
    go = true;
    go.notify_all();
  });
  int seen = 0;
  EXPECT_TRUE(run({x_}, {y_}, [&](const TaskContext&) { seen = done; }));
  later.join();
  EXPECT_EQ(seen, 2);
}

TEST_F(RunHere, ThrowsTheFailureOfWhatItReads) {
  engine_.push(
      {.name = "batch", .lane = lane_, .writes = {x_}, .run = [](const TaskContext&) { throw Error("no label"); }});
  bool ran = false;
  EXPECT_ERROR(run({x_}, {y_}, [&](const TaskContext&) { ran = true; }), "batch on a: no label");
  EXPECT_FALSE(ran);
  engine_.wait_readable(y_);
}

TEST_F(RunHere, ThrowsItsOwnFailure) {
  EXPECT_ERROR(run({}, {x_}, [](const TaskContext&) { throw Error("too large"); }), "here on a: too large");
  // The thread is in no task any more.
  engine_.push({.name = "next", .lane = lane_, .writes = {x_}, .run = [](const TaskContext&) {}});
  engine_.wait_readable(x_);
}

TEST_F(RunHere, MayNotWait) {
  EXPECT_ERROR(run({}, {x_}, [&](const TaskContext&) { engine_.wait_readable(y_); }),
               "wait_readable: called inside task here");
}

TEST_F(RunHere, TheEngineKeepsWhatItMustKnow) {
  const auto nothing = [](const TaskContext&) {};
  Task update{.name = "update", .lane = lane_, .reads = {x_}, .writes = {x_}, .updates = true, .run = nothing};
  EXPECT_FALSE(engine_.run_here(update, nullptr));
  engine_.push(
      {.name = "batch", .lane = lane_, .writes = {x_}, .run = [](const TaskContext&) { throw Error("no label"); }});
  // Its success would not end the failure of x.
  EXPECT_FALSE(run({}, {x_}));
  EXPECT_THROW(engine_.wait_readable(x_), TaskError);
  engine_.set_trace(std::make_shared<Trace>());
  EXPECT_FALSE(run({}, {y_}));
  engine_.set_trace(nullptr);
  EXPECT_TRUE(run({}, {y_}));
  Engine serial({.serial = true});
  const LaneId lane = serial.add_lane({.name = "a"});
  Task task{.name = "serial", .lane = lane, .writes = {serial.make_resource()}, .run = nothing};
  EXPECT_FALSE(serial.run_here(task, nullptr));
}

}  // namespace
}  // namespace lockstep
