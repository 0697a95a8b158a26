#include "lockstep/engine/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

using testing::ElementsAre;

class RecordingTest : public testing::TestWithParam<bool> {
 protected:
  Engine engine{{.serial = GetParam()}};
  LaneId a = engine.add_lane({.name = "a"}), b = engine.add_lane({.name = "b"});
  Resource x = engine.make_resource(), y = engine.make_resource();
  std::shared_ptr<TaskRecorder> recorder = std::make_shared<TaskRecorder>();
  std::vector<int> log;  // written by tasks that write y

  void append(int n, Resources reads = {}) {
    reads.push_back(y);
    engine.push(
        {.name = "append", .lane = a, .reads = std::move(reads), .writes = {y}, .run = [this, n](const TaskContext&) {
           log.push_back(n);
         }});
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, RecordingTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "serial" : "threaded"; });

TEST_P(RecordingTest, RunsAsItIsRecordedAndAgainAtEachRepetition) {
  append(0);
  engine.set_push_observer(recorder);
  append(1);
  append(2);
  engine.set_push_observer(nullptr);
  append(3);
  const Recording recording = recorder->take();
  recording.replay(engine);
  append(4);
  recording.replay(engine);
  engine.wait_readable(y);
  EXPECT_THAT(log, ElementsAre(0, 1, 2, 3, 1, 2, 4, 1, 2));
}

TEST_P(RecordingTest, LeavesOutPausesAndOtherThreads) {
  engine.set_push_observer(recorder);
  append(1);
  recorder->pause(true);
  append(2);
  recorder->pause(false);
  std::thread([&] { append(3); }).join();
  engine.set_push_observer(nullptr);
  const Recording recording = recorder->take();
  recording.replay(engine);
  engine.wait_readable(y);
  EXPECT_THAT(log, ElementsAre(1, 2, 3, 1));
}

TEST_P(RecordingTest, KnowsWhetherItsThreadHasWaited) {
  engine.set_push_observer(recorder);
  append(1);
  std::thread([&] { engine.wait_readable(y); }).join();
  EXPECT_FALSE(recorder->waited());
  engine.wait_readable(y);
  EXPECT_TRUE(recorder->waited());
  engine.set_push_observer(nullptr);
}

// Memory that is used twice within a step has two resources there and one in its repetitions: the first user of the
// next one waits for the last user of this one.
TEST_P(RecordingTest, MemoryThatChangesHandsStaysInOrder) {
  int memory = 0;
  std::vector<int> seen;
  const auto write = [&](const Resource& r, LaneId lane, int value) {
    engine.push({.name = "write", .lane = lane, .writes = {r}, .run = [&memory, value](const TaskContext&) {
                   std::this_thread::yield();
                   memory = value;
                 }});
  };
  const auto read = [&](const Resource& r, LaneId lane) {
    engine.push({.name = "read", .lane = lane, .reads = {r, y}, .writes = {y}, .run = [&](const TaskContext&) {
                   seen.push_back(memory);
                 }});
  };
  engine.set_push_observer(recorder);
  Resource second;
  {
    const Resource first = engine.make_resource();
    write(first, a, 1);
    read(first, b);
    second = engine.make_successor(first);
    write(second, a, 2);
    read(second, b);
  }
  engine.set_push_observer(nullptr);
  const Recording recording = recorder->take();
  EXPECT_EQ(recording.writes().size(), 2u);
  EXPECT_TRUE(recording.writes()[0] == second);
  // y is read before it is written, the memory is not.
  ASSERT_EQ(recording.reads().size(), 1u);
  EXPECT_TRUE(recording.reads()[0] == y);
  constexpr int kRounds = 200;
  for (int i = 1; i < kRounds; ++i) recording.replay(engine);
  engine.wait_all();
  std::vector<int> expected;
  for (int i = 0; i < kRounds; ++i) expected.insert(expected.end(), {1, 2});
  EXPECT_EQ(seen, expected);
}

TEST_P(RecordingTest, ARepetitionThatFailsFailsItsReadersAndNoLaterRepetition) {
  bool fails = false;
  engine.set_push_observer(recorder);
  engine.push({.name = "make", .lane = a, .writes = {x}, .run = [&](const TaskContext&) {
                 if (fails) throw std::runtime_error("no");
               }});
  engine.push({.name = "use", .lane = b, .reads = {x}, .writes = {y}, .run = [](const TaskContext&) {}});
  engine.set_push_observer(nullptr);
  const Recording recording = recorder->take();
  engine.wait_readable(y);
  fails = true;
  recording.replay(engine);
  EXPECT_THROW(engine.wait_readable(y), TaskError);
  fails = false;
  recording.replay(engine);
  EXPECT_NO_THROW(engine.wait_readable(y));
}

}  // namespace
}  // namespace lockstep
