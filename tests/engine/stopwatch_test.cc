#include "lockstep/engine/stopwatch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "lockstep/engine/trace.h"
#include "tests/engine/fake_stream.h"

namespace lockstep::testing_engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class StopwatchTest : public testing::Test {
 protected:
  void push(LaneId lane, std::function<void()> work, Resources reads = {}, Resources writes = {}) {
    engine->push({.name = "t",
                  .lane = lane,
                  .reads = std::move(reads),
                  .writes = std::move(writes),
                  .run = [work = std::move(work)](const TaskContext&) { work(); }});
  }
  // Whether the lane's clock stands still within seconds.
  bool stands_still(LaneId lane) const {
    for (int i = 0; i < 5000; ++i) {
      const auto busy = engine->busy(lane);
      std::this_thread::sleep_for(1ms);
      if (engine->busy(lane) == busy) return true;
    }
    return false;
  }

  std::shared_ptr<FakeStream> stream = std::make_shared<FakeStream>();
  std::shared_ptr<Engine> engine = std::make_shared<Engine>();
  LaneId a = engine->add_lane({.name = "a"}), b = engine->add_lane({.name = "b"});
  LaneId gpu = engine->add_lane({.name = "gpu", .stream = stream});
};

TEST_F(StopwatchTest, CountsTheTasksBetweenItsMarksOnEachLane) {
  Stopwatch stopwatch(engine, {a, b});
  const auto begin = Clock::now();
  push(a, [] { std::this_thread::sleep_for(20ms); });
  stopwatch.start();
  push(a, [] { std::this_thread::sleep_for(4ms); });
  push(b, [] { std::this_thread::sleep_for(3ms); });
  stopwatch.stop();
  push(a, [] { std::this_thread::sleep_for(20ms); });
  stopwatch.start();
  push(a, [] { std::this_thread::sleep_for(2ms); });
  stopwatch.stop();
  const auto times = stopwatch.take();
  EXPECT_GE(times[0], 6ms);
  EXPECT_GE(times[1], 3ms);
  // Without the tasks before and between.
  EXPECT_LE(times[0], Clock::now() - begin - 40ms);
  for (const auto time : stopwatch.take()) EXPECT_EQ(time, 0ns);
}

// On a lane with a stream: the device's time, and not that of queueing.
TEST_F(StopwatchTest, CountsTheTimeOfTheDevice) {
  const auto queue = [&](std::chrono::milliseconds time) {
    push(gpu, [this, time] { stream->queue([time] { std::this_thread::sleep_for(time); }); });
  };
  for (const bool tracing : {false, true}) {
    if (tracing) engine->set_trace(std::make_shared<Trace>());
    Stopwatch stopwatch(engine, {gpu, a});
    const auto begin = Clock::now();
    queue(20ms);
    stopwatch.start();
    queue(4ms);
    queue(3ms);
    stopwatch.stop();
    queue(20ms);
    const auto times = stopwatch.take();
    EXPECT_GE(times[0], 7ms);
    engine->wait_all();
    EXPECT_LE(times[0], Clock::now() - begin - 40ms);
    EXPECT_EQ(stopwatch.take()[0], 0ns);
  }
  engine->set_trace(nullptr);
}

TEST_F(StopwatchTest, WaitingForAnotherLaneIsNotBusy) {
  Resource data = engine->make_resource();
  std::atomic<bool> begun = false, still = false;
  push(a,
       [&] {
         while (!begun) std::this_thread::yield();
         still = stands_still(b);
       },
       {}, {data});
  push(b, [&] { begun = true; });
  push(b, [] {}, {data});
  engine->wait_all();
  EXPECT_TRUE(still);
}

TEST_F(StopwatchTest, WaitingForADeviceIsNotBusy) {
  Resource data = engine->make_resource();
  std::promise<void> go, next;
  push(gpu, [&] { stream->queue([held = go.get_future().share()] { held.wait(); }); }, {}, {data});
  while (engine->counters().completed < 1) std::this_thread::yield();
  // The lane goes on to the task that waits.
  push(a, [held = next.get_future().share()] { held.wait(); });
  push(a, [] {}, {data});
  next.set_value();
  while (engine->counters().completed < 2) std::this_thread::yield();
  EXPECT_TRUE(stands_still(a));
  go.set_value();
  engine->wait_all();
}

}  // namespace
}  // namespace lockstep::testing_engine
