// The engine, threaded and serial, and its state machine alone, against running the same program in order.
// LOCKSTEP_SEEDS=100000 for a long run.
#include "tests/engine/random_program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/engine/dependency_graph.h"

namespace lockstep::testing_engine {
namespace {

void expect_same(const Trail& expected, const Trail& actual) {
  EXPECT_EQ(expected.answers, actual.answers);
  EXPECT_EQ(expected.memory, actual.memory);
  EXPECT_EQ(expected.counters.pushed, actual.counters.pushed);
  EXPECT_EQ(expected.counters.completed, actual.counters.completed);
  EXPECT_EQ(expected.counters.failed, actual.counters.failed);
  EXPECT_EQ(expected.counters.skipped, actual.counters.skipped);
}

SmallVector<Resource, 4> select(const std::vector<Resource>& resources, const std::vector<int>& indices) {
  SmallVector<Resource, 4> selected;
  for (const int i : indices) selected.push_back(resources[i]);
  return selected;
}

Trail run_on_engine(const Program& program, const EngineOptions& options) {
  Trail trail{.memory = Memory(program.resources), .answers = {}, .counters = {}};
  std::vector<int> last_of_lane(program.lanes, -1);
  Engine engine(options);
  std::vector<Resource> resources;
  for (int i = 0; i < program.resources; ++i) resources.push_back(engine.make_resource());
  for (int i = 0; i < program.lanes; ++i) engine.add_lane({.name = std::to_string(i)});
  const auto answer = [&](auto wait) {
    try {
      wait();
      trail.answers.push_back("ok");
    } catch (const TaskError& error) {
      trail.answers.push_back(error.task());
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
                     .run = [&step, &trail, &last_of_lane](const TaskContext& context) {
                       EXPECT_LT(std::exchange(last_of_lane[context.lane.index], step.id), step.id);
                       run_task(step, trail.memory);
                     }});
        break;
      case Step::kSuccessor:
        resource = engine.make_successor(resource);
        break;
      case Step::kWaitReadable:
        answer([&] { engine.wait_readable(resource); });
        break;
      case Step::kWaitUnused:
        engine.wait_unused(resource);
        break;
      case Step::kWaitAll:
        answer([&] { engine.wait_all(); });
        break;
      case Step::kForgive:
        trail.answers.push_back(engine.forgive(resource) ? "forgiven" : "torn");
        break;
    }
  }
  for (const Resource& resource : resources) engine.wait_unused(resource);
  try {
    engine.wait_all();
  } catch (const TaskError&) {
  }
  trail.counters = engine.counters();
  return trail;
}

// Starts and ends ready tasks in random order, in between the host's steps.
class RandomOrder {
 public:
  RandomOrder(const Program& program, std::uint64_t seed) : program_(program), random_(seed) {
    trail_.memory.resize(program.resources);
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
    FailurePtr failed_read;
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
        if (waiter.failure) graph_.take_logged(*waiter.failure);
        trail_.answers.push_back(waiter.failure ? waiter.failure->task : "ok");
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
        const auto entry = graph_.take_first_logged();
        trail_.answers.push_back(entry ? entry.mapped()->task : "ok");
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
      one->failed_read = graph_.failed_read(*one->node);
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
    FailurePtr failure = task.failed_read;
    if (!failure) {
      outcome = Outcome::kDone;
      try {
        run_task(*task.step, trail_.memory);
      } catch (const std::runtime_error&) {
        outcome = Outcome::kFailed;
        failure =
            std::make_shared<Failure>(Failure{.task = task_name(task.step->id), .order = task.node->order});
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

template <typename Run>
void for_each_seed(Run run) {
  for (int seed = 0; seed < seed_count(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Program program = random_program(seed);
    expect_same(interpret(program), run(program, seed));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RandomProgram, StateMachineInRandomOrder) {
  for_each_seed([](const Program& program, int seed) { return RandomOrder(program, seed).run(); });
}

TEST(RandomProgram, SerialEngine) {
  for_each_seed([](const Program& program, int) { return run_on_engine(program, {.serial = true}); });
}

TEST(RandomProgram, ThreadedEngine) {
  for_each_seed([](const Program& program, int seed) {
    // Workers that spin and workers that sleep at once, a host that runs ahead and one that is held back.
    return run_on_engine(program, {.max_pending_tasks = seed % 3 ? 1000 : 1 + seed % 7,
                                   .spin_microseconds = seed % 2 ? 0 : 20});
  });
}

// The programs reach what they are meant to test.
TEST(RandomProgram, ProgramsThrowSkipWaitAndForgive) {
  EngineCounters sum;
  std::map<std::string, int> answers;
  for (int seed = 0; seed < 100; ++seed) {
    const Trail trail = interpret(random_program(seed));
    sum.failed += trail.counters.failed;
    sum.skipped += trail.counters.skipped;
    for (const std::string& answer : trail.answers)
      ++answers[answer[0] == 't' && answer != "torn" ? "task" : answer];
  }
  EXPECT_GT(sum.failed, 100);
  EXPECT_GT(sum.skipped, 100);
  for (const char* answer : {"ok", "task", "torn", "forgiven"}) EXPECT_GT(answers[answer], 10) << answer;
}

}  // namespace
}  // namespace lockstep::testing_engine
