// Orders in which objects may go: engines, resources, closures and the errors that they leave.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include "lockstep/engine/engine.h"
#include "tests/thread_limit.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Context = const TaskContext&;

TEST(EngineLifetime, DestructionWaitsForAllTasks) {
  std::atomic<int> done = 0;
  {
    Engine engine;
    const LaneId a = engine.add_lane({.name = "a"}), b = engine.add_lane({.name = "b"});
    const Resource x = engine.make_resource();
    for (int i = 0; i < 100; ++i) {
      engine.push({.name = "t", .lane = i % 2 ? a : b, .writes = {x}, .run = [&](Context) {
                     if (done == 0) std::this_thread::sleep_for(5ms);
                     ++done;
                   }});
    }
  }
  EXPECT_EQ(done, 100);
}

TEST(EngineLifetime, DestructionAfterAFailureIsQuiet) {
  Engine engine;
  const LaneId a = engine.add_lane({.name = "a"});
  engine.push({.name = "bad", .lane = a, .run = [](Context) { fail("bad"); }});
}

[[noreturn]] void add_too_many_lanes() {
  allow_one_more_thread();
  std::string error;
  {
    Engine engine;
    engine.add_lane({.name = "a"});
    try {
      engine.add_lane({.name = "b", .device = "cpu:0"});
    } catch (const Error& e) {
      error = e.what();
    }
  }
  fmt::print(stderr, "{}; {}\n", error, is_only_thread() ? "alone" : "others run");
  std::_Exit(0);
}

TEST(EngineLifetimeDeathTest, AThreadThatCannotBeMadeIsAnError) {
  if (!kThreadsCanBeLimited) GTEST_SKIP() << "under the thread sanitizer";
  EXPECT_EXIT(add_too_many_lanes(), ::testing::ExitedWithCode(0),
              "^engine: cannot make the thread of lane cpu:0 b: Resource temporarily unavailable; alone\n$");
}

TEST(EngineLifetime, AResourceMayOutliveItsEngine) {
  Resource x, copy;
  {
    Engine engine;
    const LaneId a = engine.add_lane({.name = "a"});
    x = engine.make_resource();
    copy = x;
    engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [](Context) { fail("bad"); }});
  }
  EXPECT_EQ(copy, x);
  x = {};
  EXPECT_FALSE(x);
  EXPECT_TRUE(copy);
}

TEST(EngineLifetime, AResourceMayGoBeforeItsTasks) {
  Engine engine;
  const LaneId a = engine.add_lane({.name = "a"}), b = engine.add_lane({.name = "b"});
  std::promise<void> go;
  int memory = 0;
  {
    const Resource x = engine.make_resource();
    engine.push({.name = "w", .lane = a, .writes = {x}, .run = [&](Context) {
                   go.get_future().wait();
                   memory = 1;
                 }});
    engine.push({.name = "r", .lane = b, .reads = {x}, .run = [&](Context) { EXPECT_EQ(memory, 1); }});
    engine.make_successor(engine.make_successor(x));
  }
  go.set_value();
  engine.wait_all();
  EXPECT_EQ(engine.counters().completed, 2);
}

// Calls back into the engine when it goes, like a tensor that gives its memory back.
struct Owner {
  Engine* engine;
  Resource resource;
  int* gone;
  ~Owner() {
    engine->make_successor(resource);
    engine->unused(resource);
    ++*gone;
  }
};

class EngineLifetimeOfBoth : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Engines, EngineLifetimeOfBoth, testing::Bool(),
                         [](const auto& info) { return info.param ? "Serial" : "Threaded"; });

TEST_P(EngineLifetimeOfBoth, AClosureMayCallTheEngineWhenItGoes) {
  Engine engine({.serial = GetParam()});
  const LaneId a = engine.add_lane({.name = "a"});
  const Resource x = engine.make_resource();
  int gone = 0;
  engine.push(
      {.name = "t", .lane = a, .writes = {x}, .run = [owner = std::make_shared<Owner>(&engine, x, &gone)](Context) {}});
  engine.wait_readable(x);
  EXPECT_EQ(gone, 1);
}

TEST_P(EngineLifetimeOfBoth, AnErrorMayCallTheEngineWhenItGoes) {
  struct Loaded : Error {
    explicit Loaded(std::shared_ptr<Owner> o) : Error("loaded"), owner(std::move(o)) {}
    std::shared_ptr<Owner> owner;
  };
  Engine engine({.serial = GetParam()});
  const LaneId a = engine.add_lane({.name = "a"});
  const Resource x = engine.make_resource(), y = engine.make_resource();
  int gone = 0;
  auto owner = std::make_shared<Owner>(&engine, y, &gone);
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [owner](Context) { throw Loaded(owner); }});
  EXPECT_THROW(engine.wait_readable(x), TaskError);
  owner.reset();
  EXPECT_EQ(gone, 0);
  engine.push({.name = "good", .lane = a, .writes = {x}, .run = [](Context) {}});
  engine.push({.name = "last", .lane = a, .run = [](Context) {}});
  engine.wait_all();
  EXPECT_EQ(gone, 1);
}

// The last handle of an engine may lie in a task's closure.
TEST_P(EngineLifetimeOfBoth, AnEngineMayGoInsideItsOwnTask) {
  std::promise<void> go, ended;
  auto engine = std::make_shared<Engine>(EngineOptions{.serial = GetParam()});
  const LaneId a = engine->add_lane({.name = "a"}), b = engine->add_lane({.name = "b"});
  const Resource x = engine->make_resource();
  Engine& handle = *engine;
  if (GetParam()) {
    go.set_value();
  } else {
    handle.push({.name = "hold", .lane = b, .writes = {x}, .run = [&](Context) { go.get_future().wait(); }});
  }
  handle.push({.name = "owner", .lane = b, .writes = {x}, .run = [owner = std::move(engine)](Context) {}});
  if (!GetParam()) {
    // Pushed while the engine lives, run after it is gone.
    handle.push({.name = "after", .lane = a, .reads = {x}, .run = [&](Context) { ended.set_value(); }});
    go.set_value();
    ended.get_future().wait();
  }
}

}  // namespace
}  // namespace lockstep
