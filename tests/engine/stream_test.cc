// Lanes with streams: their tasks end when they have queued their work; whoever uses its data waits for the device.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <sstream>
#include <thread>
#include <vector>

#include "lockstep/engine/engine.h"
#include "lockstep/engine/trace.h"
#include "tests/engine/fake_stream.h"

namespace lockstep::testing_engine {
namespace {

using namespace std::chrono_literals;
using Context = const TaskContext&;

// The message that a wait throws; empty: nothing.
template <typename Wait>
std::string error_of(Wait wait) {
  try {
    wait();
  } catch (const TaskError& error) {
    return error.what();
  }
  return "";
}

// Two lanes with streams, a and b, and one without.
class Streams : public testing::Test {
 protected:
  explicit Streams(EngineOptions options = {}, FakeStreamOptions streams = {})
      : on_a(std::make_shared<FakeStream>(streams)), on_b(std::make_shared<FakeStream>(streams)),
        engine(std::move(options)) {}

  std::shared_ptr<FakeStream> on_a, on_b;
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  Engine engine;
  LaneId a = engine.add_lane({.name = "a", .device = "gpu:0", .stream = on_a});
  LaneId b = engine.add_lane({.name = "b", .device = "gpu:1", .stream = on_b});
  LaneId cpu = engine.add_lane({.name = "cpu"});
  Resource x = engine.make_resource(), y = engine.make_resource(), z = engine.make_resource();

  // The work runs on the lane's stream.
  void push(LaneId lane, Resources reads, Resources writes, std::function<void()> work) {
    push("t", lane, std::move(reads), std::move(writes), std::move(work));
  }
  void push(std::string name, LaneId lane, Resources reads, Resources writes, std::function<void()> work) {
    FakeStream* stream = lane == a ? on_a.get() : lane == b ? on_b.get() : nullptr;
    engine.push({.name = std::move(name),
                 .lane = lane,
                 .reads = std::move(reads),
                 .writes = std::move(writes),
                 .run = [stream, work = std::move(work)](Context) { stream ? stream->queue(work) : work(); }});
  }
  // Queued, and there until go.
  void push_held(LaneId lane, Resources writes) {
    push("held", lane, {}, std::move(writes), [held = gone] { held.wait(); });
    while (engine.counters().completed < engine.counters().pushed) std::this_thread::yield();
  }
  void go_soon() {
    std::thread([go = std::move(go)]() mutable {
      std::this_thread::sleep_for(3ms);
      go.set_value();
    }).detach();
  }
};

TEST_F(Streams, ATaskIsOverWhenTheDeviceIs) {
  push_held(a, {x});
  EXPECT_FALSE(engine.unused(x));
  EXPECT_TRUE(engine.unused(y));
  EXPECT_EQ(engine.lane_counters()[a.index].queued, 1);
  bool done = false;
  push(a, {x}, {x}, [&] { done = true; });
  go_soon();
  engine.wait_readable(x);
  EXPECT_TRUE(done);
  EXPECT_TRUE(engine.unused(x));
  EXPECT_EQ(engine.lane_counters()[a.index].queued, 0);
}

TEST_F(Streams, TheHostWaitsForReadersBeforeItOverwrites) {
  push(a, {}, {x}, [] {});
  push_held(a, {});
  int read = 0;
  push(a, {x}, {}, [&] { ++read; });
  engine.wait_readable(x);  // only for what writes it
  EXPECT_EQ(read, 0);
  go_soon();
  engine.wait_unused(x);
  EXPECT_EQ(read, 1);
}

TEST_F(Streams, WaitForOneAnotherAndTheHostDoesNot) {
  int value = 0;
  push_held(a, {});
  push(a, {}, {x}, [&] { value = 1; });
  push(b, {x}, {y}, [&] { value *= 10; });
  push(a, {y}, {x}, [&] { value += 5; });
  while (engine.counters().completed < 4) std::this_thread::yield();
  EXPECT_EQ(value, 0);
  go.set_value();
  engine.wait_readable(x);
  EXPECT_EQ(value, 15);
}

TEST_F(Streams, OnceIsEnoughToWaitForATicket) {
  push_held(a, {x, y});
  push(b, {x}, {}, [] {});
  push(b, {y}, {}, [] {});
  push(b, {x}, {z}, [] {});
  while (engine.counters().completed < 4) std::this_thread::yield();
  go.set_value();
  engine.wait_all();
  EXPECT_EQ(on_b->waits(), 1);
  EXPECT_EQ(on_a->waits(), 0);
}

TEST_F(Streams, ALaneWithoutOneWaitsInItsThread) {
  int value = 0;
  push_held(a, {});
  push(a, {}, {x}, [&] { value = 1; });
  push(cpu, {x}, {y}, [&] { value *= 10; });
  push(b, {y}, {x}, [&] { value += 5; });
  go_soon();
  engine.wait_readable(x);
  EXPECT_EQ(value, 15);
}

TEST_F(Streams, AWriterWaitsForAllReaders) {
  std::atomic<int> reads = 0;
  push_held(a, {});
  push(a, {x}, {}, [&] { ++reads; });
  push(b, {x}, {}, [&] { ++reads; });
  push(cpu, {}, {x}, [&] { EXPECT_EQ(reads, 2); });
  go_soon();
  engine.wait_readable(x);
}

TEST_F(Streams, ReadersDoNotWaitForOneAnother) {
  push_held(a, {});
  push(a, {x}, {}, [] {});
  bool read = false;
  push(b, {x}, {y}, [&] { read = true; });
  push(cpu, {x}, {z}, [] {});
  engine.wait_readable(y);
  engine.wait_readable(z);
  EXPECT_TRUE(read);
  go.set_value();
}

TEST_F(Streams, ASuccessorWaitsForFormerUsers) {
  int last = 0;
  push_held(a, {});
  push(a, {x}, {}, [&] { last = 1; });
  const Resource fresh = engine.make_successor(x), fresher = engine.make_successor(fresh);
  EXPECT_FALSE(engine.unused(fresher));
  push(b, {fresher}, {}, [&] { EXPECT_EQ(last, 1); });  // whatever it does with it
  push(cpu, {}, {fresher}, [&] { EXPECT_EQ(std::exchange(last, 2), 1); });
  go_soon();
  engine.wait_unused(fresher);
  EXPECT_EQ(last, 2);
}

TEST_F(Streams, WaitAllWaitsForAllStreams) {
  bool done = false;
  push_held(a, {});
  push(a, {}, {}, [&] { done = true; });
  push(b, {}, {}, [] {});
  go_soon();
  engine.wait_all();
  EXPECT_TRUE(done);
}

TEST_F(Streams, CancellationSkipsWhatIsNotQueued) {
  push_held(a, {x});
  std::promise<void> started, resume;
  engine.push({.name = "t", .lane = b, .writes = {y}, .run = [&](Context) {
                 started.set_value();
                 resume.get_future().wait();
               }});
  started.get_future().wait();
  bool ran = false;
  push(b, {}, {z}, [&] { ran = true; });
  engine.cancel_pending("enough");
  resume.set_value();
  EXPECT_THROW(engine.wait_readable(z), CancelledError);
  go.set_value();
  engine.wait_readable(x);
  EXPECT_FALSE(ran);
}

TEST_F(Streams, ATaskThatThrowsMayHaveQueuedWork) {
  bool queued = false;
  push_held(a, {});
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [&](Context) {
                 on_a->queue([&] { queued = true; });
                 fail("bad");
               }});
  go_soon();
  EXPECT_EQ(error_of([&] { engine.wait_readable(x); }), "bad on gpu:0 a: bad");
  EXPECT_TRUE(queued);
  EXPECT_FALSE(engine.forgive(x));
}

TEST_F(Streams, AFailureOfTheDeviceIsThatOfTheFirstUnfinishedTask) {
  push("good", a, {}, {x}, [] {});
  push("bad", a, {}, {y}, [] { fail("no such row"); });
  push("next", a, {y}, {z}, [] {});
  EXPECT_EQ(error_of([&] { engine.wait_readable(z); }), "bad on gpu:0 a: the device says no");
  EXPECT_EQ(error_of([&] { engine.wait_readable(y); }), "bad on gpu:0 a: the device says no");
  EXPECT_EQ(engine.failure(y)->task, "bad");
  EXPECT_FALSE(engine.forgive(y));
  engine.wait_readable(x);
  engine.wait_all();  // told
  EXPECT_EQ(engine.counters().failed, 1);
  // Its readers are skipped, on any lane, until it is written anew.
  bool ran = false;
  push(b, {y}, {x}, [&] { ran = true; });
  push(cpu, {x}, {z}, [&] { ran = true; });
  EXPECT_THROW(engine.wait_readable(z), TaskError);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(engine.forgive(z) == false);
  push(a, {}, {y}, [] {});
  push(b, {y}, {x}, [&] { ran = true; });
  engine.wait_readable(x);
  EXPECT_TRUE(ran);
}

TEST_F(Streams, AFailureBehindAnotherOneIsPartOfIt) {
  push_held(a, {});
  push("bad", a, {}, {x}, [] { fail("no such row"); });
  push("worse", a, {}, {y}, [] { fail("no such row"); });
  while (engine.counters().completed < 3) std::this_thread::yield();
  go_soon();
  EXPECT_EQ(error_of([&] { engine.wait_readable(y); }), "bad on gpu:0 a: the device says no");
  push("good", a, {}, {z}, [] {});
  engine.wait_readable(z);
  engine.wait_all();
}

TEST_F(Streams, WaitAllThrowsAFailureOfTheDeviceOnce) {
  push("bad", a, {}, {}, [] { fail("no such row"); });
  EXPECT_EQ(error_of([&] { engine.wait_all(); }), "bad on gpu:0 a: the device says no");
  engine.wait_all();
}

// The other stream has read what was never good, and knows nothing of it.
TEST_F(Streams, AFailureGoesToWhoHasReadItsDataBeforeItWasKnown) {
  push_held(a, {});
  push("bad", a, {}, {x}, [] { fail("no such row"); });
  push("next", b, {x}, {y}, [] {});
  push("other", b, {}, {z}, [] {});
  while (engine.counters().completed < 4) std::this_thread::yield();
  go.set_value();
  EXPECT_EQ(error_of([&] { engine.wait_readable(y); }), "bad on gpu:0 a: the device says no");
  engine.wait_readable(z);
}

class ExactStreams : public Streams {
 protected:
  ExactStreams() : Streams({}, {.exact = true}) {}
};

// A bad batch: what is queued behind it, such as the next batch, is good.
TEST_F(ExactStreams, WhatDoesNotReadInvalidDataIsGood) {
  const Resource u = engine.make_resource(), v = engine.make_resource();
  push_held(a, {});
  push("bad", a, {}, {x}, [] { fail("no such row"); });
  push("reader", a, {x}, {y}, [] {});
  push("reader on b", b, {y}, {z}, [] {});
  push("next", a, {}, {u}, [] {});
  push("other bad", a, {}, {v}, [] { fail("no such row"); });
  push("next", b, {u}, {}, [] {});
  while (engine.counters().completed < 7) std::this_thread::yield();
  go.set_value();
  engine.wait_readable(u);
  for (const Resource& lost : {z, y, x}) {
    EXPECT_EQ(error_of([&] { engine.wait_readable(lost); }), "bad on gpu:0 a: the device says no");
  }
  EXPECT_EQ(error_of([&] { engine.wait_readable(v); }), "other bad on gpu:0 a: the device says no");
  engine.wait_readable(u);
  engine.wait_all();
  EXPECT_EQ(engine.counters().failed, 2);
}

// A task that reads lost data may find them invalid.
TEST_F(ExactStreams, WhatReadsInvalidDataReportsNothingOfItsOwn) {
  push_held(a, {});
  push("bad", a, {}, {x}, [] { fail("no such row"); });
  push("reader", a, {x}, {y}, [] { fail("no such row, either"); });
  while (engine.counters().completed < 3) std::this_thread::yield();
  go.set_value();
  EXPECT_EQ(error_of([&] { engine.wait_readable(y); }), "bad on gpu:0 a: the device says no");
  engine.wait_all();
  EXPECT_EQ(engine.counters().failed, 1);
}

TEST_F(ExactStreams, APartOfATaskFailsTheTask) {
  engine.push({.name = "parts", .lane = a, .writes = {x}, .run = [&](Context) {
                 on_a->queue([] { fail("no such row"); });
                 on_a->record(false);
                 on_a->queue([] {});
               }});
  push("next", a, {}, {y}, [] {});
  EXPECT_EQ(error_of([&] { engine.wait_readable(x); }), "parts on gpu:0 a: the device says no");
  engine.wait_readable(y);
  engine.wait_all();
}

// One bad batch in two shards.
TEST_F(ExactStreams, FailuresThatATaskJoinsAreOne) {
  push_held(a, {});
  push("bad", a, {}, {x}, [] { fail("no such row"); });
  push("other bad", a, {}, {y}, [] { fail("no such row"); });
  push("sum", a, {x, y}, {z}, [] {});
  while (engine.counters().completed < 4) std::this_thread::yield();
  go.set_value();
  EXPECT_EQ(error_of([&] { engine.wait_readable(z); }), "bad on gpu:0 a: the device says no");
  engine.wait_all();
  EXPECT_EQ(engine.counters().failed, 2);
}

// A loss, and its gradient, which fails apart from it: see FailureGroup.
class FailuresOfAGroupOnStreams : public Streams {
 protected:
  void fail_in(const std::shared_ptr<FailureGroup>& of, const Resource& data, const std::string& name) {
    engine.push({.name = name, .lane = a, .writes = {data}, .group = of, .run = [this](Context) {
                   on_a->queue([] { fail("no such row"); });
                 }});
    on_a->synchronize(engine.counters().pushed);  // it is known before the next task is launched
    while (engine.counters().completed < engine.counters().pushed) std::this_thread::yield();
  }

  Resource loss = engine.make_resource();
  std::shared_ptr<FailureGroup> group = std::make_shared<FailureGroup>(std::vector{loss});
};

TEST_F(FailuresOfAGroupOnStreams, AreReportedWithTheRoots) {
  fail_in(nullptr, loss, "loss");
  EXPECT_EQ(error_of([&] { engine.wait_readable(loss); }), "loss on gpu:0 a: the device says no");
  fail_in(group, x, "gradient");
  EXPECT_EQ(error_of([&] { engine.wait_all(); }), "");
  EXPECT_TRUE(engine.reported(*group));
}

TEST_F(FailuresOfAGroupOnStreams, ReportThoseOfTheRoots) {
  fail_in(nullptr, loss, "loss");
  EXPECT_NE(engine.failure(loss), nullptr);
  fail_in(group, x, "gradient");
  EXPECT_EQ(error_of([&] { engine.wait_readable(x); }), "gradient on gpu:0 a: the device says no");
  EXPECT_EQ(error_of([&] { engine.wait_all(); }), "");
}

TEST_F(FailuresOfAGroupOnStreams, ThatNobodyHasReadAreReportedOnce) {
  fail_in(nullptr, loss, "loss");
  EXPECT_NE(engine.failure(loss), nullptr);
  fail_in(group, x, "gradient");
  EXPECT_EQ(error_of([&] { engine.wait_all(); }), "loss on gpu:0 a: the device says no");
  EXPECT_EQ(error_of([&] { engine.wait_all(); }), "");
}

TEST_F(Streams, ADeadDeviceHoldsUpNobody) {
  push_held(a, {});
  push("bad", a, {}, {x}, [] { throw FakeStream::Death(); });
  push(b, {x}, {y}, [] {});
  go_soon();
  EXPECT_THROW(engine.wait_readable(y), TaskError);
  for (int i = 0; i < 3; ++i) {
    push("dead", a, {}, {x}, [] {});
    push(cpu, {x}, {y}, [] {});
    EXPECT_EQ(error_of([&] { engine.wait_readable(y); }), "dead on gpu:0 a: the device says no");
  }
  push(b, {}, {y}, [] {});
  engine.wait_readable(y);
}

TEST_F(Streams, DestructionWaitsForThem) {
  std::atomic<bool> done = false;
  {
    const auto stream = std::make_shared<FakeStream>();
    Engine other;
    const LaneId lane = other.add_lane({.name = "lane", .stream = stream});
    other.push({.name = "t", .lane = lane, .run = [&](Context) {
                  stream->queue([&] {
                    std::this_thread::sleep_for(3ms);
                    done = true;
                  });
                }});
  }
  EXPECT_TRUE(done);
}

// A lane that has work left on its device is the one to queue behind it, and not the one for something else.
TEST_F(Streams, ChooseLaneCountsWhatTheDeviceHasToDo) {
  push_held(a, {x});
  push_held(a, {y});
  const std::vector<LaneId> both{a, b};
  const auto choose = [&](Resources reads) {
    return engine.choose_lane(both, {.name = "t", .reads = std::move(reads)});
  };
  EXPECT_EQ(choose({y}), a);
  EXPECT_EQ(choose({x}), b);
  EXPECT_EQ(choose({}), b);
  go.set_value();
}

TEST_F(Streams, TheTimelineShowsTheDevicesTimes) {
  const auto trace = std::make_shared<Trace>();
  engine.set_trace(trace);
  const auto hold = [held = gone] {
    held.wait();
    std::this_thread::sleep_for(3ms);
  };
  push("long", a, {}, {x}, hold);
  push("next", b, {x}, {y}, [] { std::this_thread::sleep_for(2ms); });
  while (engine.counters().completed < 2) std::this_thread::yield();
  push("last", cpu, {y}, {}, [] {});
  go_soon();
  engine.wait_all();
  const std::vector<TraceRecord> records = trace->records();
  ASSERT_EQ(records.size(), 3u);
  const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  EXPECT_EQ(records[0].name, "long");
  EXPECT_GE(ms(records[0].end_ns - records[0].begin_ns), 3);
  EXPECT_EQ(records[1].name, "next");
  EXPECT_EQ(records[1].lane, b.index);
  EXPECT_GE(records[1].begin_ns, records[0].end_ns);
  EXPECT_GE(ms(records[1].end_ns - records[1].begin_ns), 2);
  EXPECT_EQ(records[2].name, "last");
  EXPECT_GE(records[2].begin_ns, records[1].end_ns);
  EXPECT_EQ(records[1].waited_for, records[0].order);
}

class FewPendingTasks : public Streams {
 protected:
  FewPendingTasks() : Streams({.max_pending_tasks = 32}) {}
};

TEST_F(FewPendingTasks, AlsoBoundWhatTheDeviceHasToDo) {
  push_held(a, {});
  std::jthread host([&] {
    for (int i = 0; i < 100; ++i) push(a, {}, {}, [] {});
  });
  std::this_thread::sleep_for(5ms);
  EXPECT_LE(engine.counters().completed, 32 / 8);
  go.set_value();
  host.join();
  engine.wait_all();
  EXPECT_EQ(engine.counters().completed, 101);
}

class SlowStreams : public Streams {
 protected:
  SlowStreams()
      : Streams({.slow_wait = 2ms, .on_slow_wait = [this](auto, const std::string& report) {
                   reports.push_back(report);
                   if (reports.size() == 2) go.set_value();
                 }}) {}
  std::vector<std::string> reports;
};

TEST_F(SlowStreams, AreReported) {
  push_held(a, {x});
  push("next", a, {x}, {x}, [] {});
  while (engine.counters().completed < 2) std::this_thread::yield();
  engine.wait_readable(x);
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(reports[0], "gpu:0 a: on the device, held is running or about to run; then next\n");
}

class SerialStreams : public Streams {
 protected:
  SerialStreams() : Streams({.serial = true}) {}
};

TEST_F(SerialStreams, AreWaitedForAfterEachTask) {
  const auto trace = std::make_shared<Trace>();
  engine.set_trace(trace);
  int value = 0;
  push(a, {}, {x}, [&] { value = 1; });
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(engine.unused(x));
  push("bad", b, {x}, {y}, [] { fail("no such row"); });
  EXPECT_EQ(engine.failure(y)->message, "bad on gpu:1 b: the device says no");
  EXPECT_EQ(on_b->waits(), 0);
  EXPECT_EQ(trace->records().size(), 2u);
}

}  // namespace
}  // namespace lockstep::testing_engine
