// The engine, threaded and serial, and its state machine alone, against running the same program in order.
// LOCKSTEP_SEEDS=100000 for a long run.
#include "tests/engine/random_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <tuple>

#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/push_observer.h"
#include "lockstep/engine/trace.h"
#include "tests/engine/run_program.h"

namespace lockstep::testing_engine {
namespace {

std::string name_of(const Failure& failure) { return failure.cancelled ? "cancelled" : failure.task; }

// Starts and ends ready tasks in random order, in between the host's steps.
class RandomOrder {
 public:
  RandomOrder(const Program& program, std::uint64_t seed) : program_(program), random_(seed) {
    trail_.memory.resize(program.resources);
    trail_.ran.resize(program.tasks);
    for (int i = 0; i < program.resources; ++i) resources_.push_back(graph_.make_resource());
    for (int i = 0; i < program.lanes; ++i) graph_.add_lane();
    users_.resize(program.resources);
  }

  Trail run() {
    for (const Step& step : program_.steps) {
      take(step);
      expect_ready_tasks();
      for (std::uint64_t n = random_() % 4; n > 0; --n) move();
    }
    while (move()) {
    }
    EXPECT_EQ(graph_.unfinished(), 0);
    for (const Resource& resource : resources_) EXPECT_TRUE(graph_.unused(resource));
    trail_.counters = graph_.counters();
    return std::move(trail_);
  }

 private:
  struct TestWaiter final : Waiter {
    void opened() noexcept override { EXPECT_FALSE(std::exchange(told, true)); }
    bool told = false;
  };
  struct Running {
    TaskNode* node;
    const Step* step;
    FailurePtr reason_to_skip;
    bool started = false;
  };
  struct Users {
    int readers = 0;
    int writers = 0;
  };
  // A task that has not ended; `lives` says which life of its memory each of its resources is.
  struct Unfinished {
    const Step* step;
    std::map<int, int> lives;
  };

  void take(const Step& step) {
    Resource& resource = resources_[step.resource];
    switch (step.kind) {
      case Step::kTask:
        unfinished_.push_back({&step, {}});
        for (const auto* list : {&step.reads, &step.writes}) {
          for (const int r : *list) unfinished_.back().lives[r] = lives_[r];
        }
        graph_.push({.name = std::to_string(&step - program_.steps.data()),
                     .lane = {step.lane},
                     .reads = select(resources_, step.reads),
                     .writes = select(resources_, step.writes),
                     .updates = step.updates,
                     .run = [](const TaskContext&) {}});
        break;
      case Step::kSuccessor:
        resource = graph_.make_successor(resource);
        ++lives_[step.resource];
        break;
      case Step::kWaitReadable: {
        TestWaiter waiter;
        graph_.wait_readable(resource, waiter);
        move_until_open(waiter);
        const FailurePtr& omission = waiter.omission;
        if (!waiter.failure && omission && graph_.unreported(*omission)) waiter.failure = omission;
        if (waiter.failure) std::ignore = graph_.report(*waiter.failure);
        trail_.answers.push_back(waiter.failure ? name_of(*waiter.failure) : "ok");
        break;
      }
      case Step::kWaitUnused: {
        TestWaiter waiter;
        graph_.wait_unused(resource, waiter);
        move_until_open(waiter);
        break;
      }
      case Step::kWaitAll: {
        TestWaiter waiter;
        graph_.wait_all(waiter);
        move_until_open(waiter);
        const FailurePtr first = graph_.first_unreported();
        if (first) std::ignore = graph_.report(*first);
        trail_.answers.push_back(first ? first->task : "ok");
        break;
      }
      case Step::kForgive: {
        TestWaiter waiter;
        graph_.wait_unused(resource, waiter);
        move_until_open(waiter);
        graph_.forgive(resource);
        trail_.answers.push_back(graph_.failure(resource) ? "torn" : "forgiven");
        break;
      }
      case Step::kCancel: graph_.cancel_pending("as told"); break;
    }
  }

  void move_until_open(const TestWaiter& waiter) {
    while (!waiter.open()) ASSERT_TRUE(move()) << "nothing can run";
    EXPECT_TRUE(waiter.told);
  }

  // Starts or ends one task. False if there is none.
  bool move() {
    pop_ready();
    if (running_.empty()) return false;
    const auto one = running_.begin() + static_cast<std::ptrdiff_t>(random_() % running_.size());
    if (!one->started) {
      one->started = true;
      one->reason_to_skip = graph_.reason_to_skip(*one->node);
      use(*one->step, 1);
      return true;
    }
    const Running ended = *one;
    running_.erase(one);
    end(ended);
    return true;
  }

  // Exactly those may run that share no lane and no data, unless both only read it, with an earlier one that
  // has not ended: neither fewer nor more.
  void expect_ready_tasks() {
    pop_ready();
    std::set<int> expected, actual;
    for (const Running& task : running_) actual.insert(task.step->id);
    for (auto later = unfinished_.begin(); later != unfinished_.end(); ++later) {
      const auto bars = [&](const Unfinished& earlier) { return conflict(earlier, *later); };
      if (std::none_of(unfinished_.begin(), later, bars)) expected.insert(later->step->id);
    }
    EXPECT_EQ(expected, actual);
  }

  static bool conflict(const Unfinished& earlier, const Unfinished& later) {
    if (earlier.step->lane == later.step->lane) return true;
    return std::ranges::any_of(earlier.lives, [&](const auto& use) {
      const auto [resource, life] = use;
      const auto other = later.lives.find(resource);
      return other != later.lives.end() &&
             (other->second != life || std::ranges::count(earlier.step->writes, resource) ||
              std::ranges::count(later.step->writes, resource));
    });
  }

  void pop_ready() {
    while (TaskNode* node = graph_.pop_ready()) {
      running_.push_back({node, &program_.steps[std::stoul(node->task.name)], nullptr});
    }
  }

  // Nobody shares what someone writes.
  void use(const Step& step, int change) {
    for (const int r : step.reads) users_[r].readers += change;
    for (const int w : step.writes) users_[w].writers += change;
    if (change < 0) return;
    for (const int w : step.writes) {
      EXPECT_EQ(users_[w].writers, std::ranges::count(step.writes, w));
      EXPECT_EQ(users_[w].readers, std::ranges::count(step.reads, w));
    }
    for (const int r : step.reads) EXPECT_EQ(users_[r].writers, std::ranges::count(step.writes, r));
  }

  void end(const Running& task) {
    Outcome outcome = Outcome::kSkipped;
    FailurePtr failure = task.reason_to_skip;
    if (!failure) {
      outcome = Outcome::kDone;
      trail_.ran[task.step->id] = 1;
      try {
        run_task(*task.step, trail_.memory);
      } catch (const std::runtime_error&) {
        outcome = Outcome::kFailed;
        failure = std::make_shared<Failure>(Failure{.task = task_name(task.step->id), .order = task.node->order});
        graph_.log(DependencyGraph::make_entry(failure));
      }
    }
    use(*task.step, -1);
    std::erase_if(unfinished_, [&](const Unfinished& other) { return other.step == task.step; });
    NodeList finished = graph_.complete(task.node, outcome, failure);
    DependencyGraph::clear(finished);
    graph_.recycle(finished);
  }

  const Program& program_;
  std::mt19937_64 random_;
  DependencyGraph graph_;
  std::vector<Resource> resources_;
  std::vector<Running> running_;
  std::vector<Users> users_;
  std::vector<Unfinished> unfinished_;
  std::map<int, int> lives_;  // of each memory: how many successors it has had
  Trail trail_;
};

TEST(RandomProgram, StateMachineInRandomOrder) {
  for_each_seed([](const Program& program, int seed) {
    const Trail trail = RandomOrder(program, seed).run();
    expect_same(program, interpret(program, &trail.ran), trail);
  });
}

// Nothing is pending where it could be cancelled.
TEST(RandomProgram, SerialEngine) {
  for_each_seed([](const Program& program, int) {
    expect_same(program, interpret(program), run_on_engine(program, {.serial = true}));
  });
}

TEST(RandomProgram, UpdatesInRandomOrder) {
  for_each_seed(
      [](const Program& program, int seed) {
        const Trail trail = RandomOrder(program, seed).run();
        expect_same(program, interpret(program, &trail.ran), trail);
      },
      random_updates);
}

TEST(RandomProgram, UpdatesOnEngines) {
  for_each_seed(
      [](const Program& program, int seed) {
        expect_same(program, interpret(program), run_on_engine(program, {.serial = true}));
        const Trail trail = run_on_engine(program, threaded_options(seed));
        expect_same(program, interpret(program, &trail.ran), trail);
      },
      random_updates);
}

TEST(RandomProgram, SerialEngineWithStreams) {
  for_each_seed([](const Program& program, int seed) {
    if (seed % 5 == 0)
      expect_same(program, interpret(program), run_on_engine(program, {.serial = true}, some_streams(seed)),
                  some_streams(seed));
  });
}

TEST(RandomProgram, ThreadedEngine) {
  for_each_seed([](const Program& program, int seed) {
    const Trail trail = run_on_engine(program, threaded_options(seed));
    expect_same(program, interpret(program, &trail.ran), trail);
  });
}

TEST(RandomProgram, ThreadedEngineWithStreams) {
  for_each_seed([](const Program& program, int seed) {
    const Trail trail = run_on_engine(program, threaded_options(seed), some_streams(seed));
    expect_same(program, interpret(program, &trail.ran), trail, some_streams(seed));
  });
}

// An engine that goes in the middle of a program finishes what was pushed.
TEST(RandomProgram, DestructionAtAnyMoment) {
  for_each_seed([](Program program, int seed) {
    program.steps.resize(std::mt19937_64(seed)() % program.steps.size());
    const Trail trail = run_on_engine(program, threaded_options(seed), some_streams(seed), false);
    const Trail expected = interpret(program, &trail.ran);
    EXPECT_EQ(sure_answers(program, expected, some_streams(seed)), sure_answers(program, trail, some_streams(seed)));
    EXPECT_EQ(expected.memory, trail.memory);
  });
}

struct PushCounter final : PushObserver {
  void pushed(const Task& task) noexcept override { uses += task.reads.size() + task.writes.size(); }
  void succeeded(const Resource&, const Resource&) noexcept override { ++uses; }
  std::size_t uses = 0;
};

// Whoever looks on while it runs sees something sound, and changes nothing.
TEST(RandomProgram, WatchedWhileItRuns) {
  for_each_seed([](const Program& program, int seed) {
    if (seed % 5) return;
    const auto trace = std::make_shared<Trace>(TraceOptions{.records_per_lane = 16});
    const Streams streams = some_streams(seed);
    const Trail trail = run_on_engine(program, threaded_options(seed), streams, true, [&](Engine& engine) {
      engine.set_trace(trace);
      engine.set_push_observer(std::make_shared<PushCounter>());
      return std::jthread([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          engine.pending_report();
          const EngineCounters counters = engine.counters();
          EXPECT_LE(counters.completed, counters.pushed);
          for (const LaneCounters& lane : engine.lane_counters()) {
            EXPECT_GE(lane.queued, 0);
            EXPECT_GE(lane.busy.count(), 0);
          }
          for (const TraceRecord& record : trace->records()) EXPECT_LE(record.begin_ns, record.end_ns);
        }
      });
    });
    expect_same(program, interpret(program, &trail.ran), trail, streams);
  });
}

// The programs reach what they are meant to test.
TEST(RandomProgram, ProgramsThrowSkipWaitForgiveAndCancel) {
  EngineCounters sum;
  std::map<std::string, int> answers;
  for (int seed = 0; seed < 100; ++seed) {
    const Program program = random_program(seed);
    const Trail trail = RandomOrder(program, seed).run();
    sum.failed += trail.counters.failed;
    sum.skipped += trail.counters.skipped;
    for (const std::string& answer : trail.answers) {
      ++answers[answer[0] == 't' && answer != "torn" ? "task" : answer];
    }
  }
  EXPECT_GT(sum.failed, 100);
  EXPECT_GT(sum.skipped, 100);
  for (const char* answer : {"ok", "task", "torn", "forgiven", "cancelled"}) EXPECT_GT(answers[answer], 10) << answer;
}

}  // namespace
}  // namespace lockstep::testing_engine
