#include "tests/engine/run_program.h"

#include <utility>

namespace lockstep::testing_engine {
namespace {

// A task queues what it does if the lane has a stream. It throws, if it is to throw, behind that.
void run_step(const Step& step, FakeStream* stream, const std::function<void()>& effect) {
  if (!stream) return effect();
  stream->queue([effect] {
    try {
      effect();
    } catch (const std::runtime_error&) {
    }
  });
  if (step.throws) throw std::runtime_error("as told");
}

}  // namespace

Resources select(const std::vector<Resource>& resources, const std::vector<int>& indices) {
  Resources selected;
  for (const int i : indices) selected.push_back(resources[i]);
  return selected;
}

EngineOptions threaded_options(int seed) {
  return {.max_pending_tasks = seed % 3 ? 1000 : 1 + seed % 7, .spin_microseconds = seed % 2 ? 0 : 20};
}

std::shared_ptr<FakeStream> Streams::make(int lane) const {
  if (!(lanes >> lane & 1)) return nullptr;
  return std::make_shared<FakeStream>(FakeStreamOptions{.seed = seed + lane,
                                                        .most_delay = std::chrono::microseconds(seed % 3 * 15),
                                                        .vague = vague,
                                                        .exact = (seed + lane) % 2 == 1});
}

Streams some_streams(int seed) {
  return {
      .lanes = static_cast<unsigned>(seed / 3) % 16, .seed = static_cast<std::uint64_t>(seed), .vague = seed % 2 == 0};
}

Trail run_on_engine(const Program& program, const EngineOptions& options, const Streams& streams, bool settle,
                    const Beside& beside) {
  Trail trail{.memory = Memory(program.resources), .answers = {}, .counters = {}, .ran = {}};
  trail.ran.resize(program.tasks);
  std::vector<int> last_of_lane(program.lanes, -1);
  // Half of the programs drop their resources before the engine goes, the others after it.
  std::vector<Resource> kept;
  Engine engine(options);
  std::vector<Resource> resources;
  const std::jthread thread = beside ? beside(engine) : std::jthread();
  for (int i = 0; i < program.resources; ++i) resources.push_back(engine.make_resource());
  std::vector<FakeStream*> stream_of_lane;
  for (int i = 0; i < program.lanes; ++i) {
    const std::shared_ptr<FakeStream> stream = streams.make(i);
    stream_of_lane.push_back(stream.get());
    engine.add_lane({.name = std::to_string(i), .stream = stream});
  }
  const auto answer = [&](auto wait) {
    try {
      wait();
      trail.answers.push_back("ok");
    } catch (const TaskError& error) {
      trail.answers.push_back(dynamic_cast<const CancelledError*>(&error) ? "cancelled" : error.task());
    }
  };
  for (const Step& step : program.steps) {
    Resource& resource = resources[step.resource];
    switch (step.kind) {
      case Step::kTask:
        engine.push({.name = task_name(step.id),
                     .lane = {step.lane},
                     .reads = select(resources, step.reads),
                     .writes = select(resources, step.writes),
                     .updates = step.updates,
                     .run = [&step, &trail, &last_of_lane, stream = stream_of_lane[step.lane]](const TaskContext&) {
                       run_step(step, stream, [&step, &trail, &last_of_lane] {
                         EXPECT_LT(std::exchange(last_of_lane[step.lane], step.id), step.id);
                         trail.ran[step.id] = 1;
                         run_task(step, trail.memory);
                       });
                     }});
        break;
      case Step::kSuccessor: resource = engine.make_successor(resource); break;
      case Step::kWaitReadable: answer([&] { engine.wait_readable(resource); }); break;
      case Step::kWaitUnused:
        engine.wait_unused(resource);
        EXPECT_TRUE(engine.unused(resource));
        break;
      case Step::kWaitAll: answer([&] { engine.wait_all(); }); break;
      case Step::kForgive: trail.answers.push_back(engine.forgive(resource) ? "forgiven" : "torn"); break;
      case Step::kCancel: engine.cancel_pending("as told"); break;
    }
  }
  if (!settle) {
    if (program.tasks % 2) kept.swap(resources);
    return trail;
  }
  for (const Resource& resource : resources) engine.wait_unused(resource);
  try {
    engine.wait_all();
  } catch (const TaskError&) {
  }
  trail.counters = engine.counters();
  return trail;
}

std::vector<std::string> sure_answers(const Program& program, const Trail& trail, const Streams& streams) {
  std::vector<std::string> answers = trail.answers;
  std::size_t i = 0;
  for (const Step& step : program.steps) {
    if (step.kind == Step::kWaitAll && streams.lanes != 0) answers.at(i) = "wait all";
    i += step.kind == Step::kWaitAll || step.kind == Step::kWaitReadable || step.kind == Step::kForgive;
  }
  return answers;
}

void expect_same(const Program& program, const Trail& expected, const Trail& actual, const Streams& streams) {
  EXPECT_EQ(sure_answers(program, expected, streams), sure_answers(program, actual, streams));
  EXPECT_EQ(expected.memory, actual.memory);
  EXPECT_EQ(expected.counters.pushed, actual.counters.pushed);
  EXPECT_EQ(expected.counters.completed, actual.counters.completed);
  EXPECT_EQ(expected.counters.failed, actual.counters.failed);
  EXPECT_EQ(expected.counters.skipped, actual.counters.skipped);
}

}  // namespace lockstep::testing_engine
