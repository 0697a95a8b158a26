// Random programs on devices that fail: what a wait gives as good is good, every wait ends, and no failure is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "tests/engine/run_program.h"

namespace lockstep::testing_engine {
namespace {

// The contents of memory after every step, if nothing fails.
std::vector<Memory> expected_memory(const Program& program) {
  Memory memory(program.resources);
  std::vector<Memory> after;
  for (const Step& step : program.steps) {
    if (step.kind == Step::kTask) run_task(step, memory);
    after.push_back(memory);
  }
  return after;
}

class FailingDevices {
 public:
  FailingDevices(Program program, int seed) : program_(std::move(program)), random_(seed), memory_(program_.resources) {
    // Others hand on memory, or take data as good that is not.
    std::erase_if(program_.steps, [](const Step& step) {
      return step.kind == Step::kSuccessor || step.kind == Step::kForgive || step.kind == Step::kCancel;
    });
    for (Step& step : program_.steps) step.throws = false;
    expected_ = expected_memory(program_);
    Streams streams = some_streams(seed);
    streams.lanes |= 1;
    for (int i = 0; i < program_.lanes; ++i) streams_.push_back(streams.make(i));
    kills_ = seed % 4 == 0;
  }

  void run(const EngineOptions& options) {
    Engine engine(options);
    for (int i = 0; i < program_.resources; ++i) resources_.push_back(engine.make_resource());
    for (int i = 0; i < program_.lanes; ++i) engine.add_lane({.name = std::to_string(i), .stream = streams_[i]});
    for (std::size_t i = 0; i < program_.steps.size(); ++i) take(engine, i);
    while (told([&] { engine.wait_all(); })) {
    }
    EXPECT_EQ(engine.counters().failed > 0, failed_ > 0) << failed_;
    EXPECT_EQ(told_, failed_ > 0);
    for (const Resource& resource : resources_) EXPECT_TRUE(engine.unused(resource));
  }

  int failed() const { return failed_; }
  int good() const { return good_; }

 private:
  void take(Engine& engine, std::size_t i) {
    const Step& step = program_.steps[i];
    switch (step.kind) {
      case Step::kTask: push(engine, step); break;
      case Step::kWaitReadable:
        if (told([&] { engine.wait_readable(resources_[step.resource]); })) break;
        EXPECT_EQ(memory_[step.resource], expected_[i][step.resource]) << "step " << i;
        ++good_;
        break;
      case Step::kWaitUnused:
        engine.wait_unused(resources_[step.resource]);
        EXPECT_TRUE(engine.unused(resources_[step.resource]));
        break;
      default: told([&] { engine.wait_all(); });
    }
  }

  void push(Engine& engine, const Step& step) {
    FakeStream* stream = streams_[step.lane].get();
    const bool fails = stream && random_() % 24 == 0;
    const auto work = [this, &step, fails] {
      run_task(step, memory_);
      if (!fails) return;
      for (const int w : step.writes) memory_[w] ^= 1;
      ++failed_;
      if (kills_) throw FakeStream::Death();
      throw std::runtime_error("as told");
    };
    engine.push({.name = task_name(step.id),
                 .lane = {step.lane},
                 .reads = select(resources_, step.reads),
                 .writes = select(resources_, step.writes),
                 .run = [stream, work](const TaskContext&) { stream ? stream->queue(work) : work(); }});
  }

  template <typename Wait>
  bool told(Wait wait) {
    try {
      wait();
      return false;
    } catch (const TaskError&) {
      return told_ = true;
    }
  }

  Program program_;
  std::mt19937_64 random_;
  Memory memory_;
  std::vector<Memory> expected_;
  std::vector<std::shared_ptr<FakeStream>> streams_;
  std::vector<Resource> resources_;
  bool kills_ = false;
  std::atomic<int> failed_ = 0;
  bool told_ = false;
  int good_ = 0;
};

TEST(RandomDeviceFailure, WhatIsGoodIsGoodAndNothingHangs) {
  int failed = 0, good = 0;
  for_each_seed([&](const Program& program, int seed) {
    FailingDevices devices(program, seed);
    devices.run(threaded_options(seed));
    failed += devices.failed();
    good += devices.good();
  });
  if (seed_count() >= 100) {
    EXPECT_GT(failed, seed_count() / 4);
    EXPECT_GT(good, seed_count() / 4);
  }
}

}  // namespace
}  // namespace lockstep::testing_engine
