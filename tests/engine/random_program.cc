#include "tests/engine/random_program.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace lockstep::testing_engine {
namespace {

std::uint64_t stir(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0x9E3779B97F4A7C15u;
  return a ^ (a >> 29);
}

}  // namespace

Program random_program(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  Program program{.resources = 1 + below(8), .lanes = 1 + below(4), .steps = {}};
  const int steps = 20 + below(100);
  const int throwing = below(3) == 0 ? 0 : 2 + below(20);  // percent
  const int waiting = below(3) * 8;                        // percent
  const auto some = [&](int most) {
    std::vector<int> resources;  // now and then one twice
    for (int n = below(most + 1); n > 0; --n) resources.push_back(below(program.resources));
    return resources;
  };
  int id = 0;
  for (int i = 0; i < steps; ++i) {
    Step step{.resource = below(program.resources), .reads = {}, .writes = {}};
    if (below(100) < waiting) {
      constexpr Step::Kind kWaits[] = {Step::kWaitReadable, Step::kWaitUnused, Step::kWaitAll,
                                       Step::kForgive};
      step.kind = kWaits[below(4)];
    } else if (below(100) < 10) {
      step.kind = Step::kSuccessor;
    } else {
      step.id = id++;
      step.lane = below(program.lanes);
      step.reads = some(i % 10 ? 3 : 8);
      step.writes = some(i % 10 ? 2 : 8);
      step.throws = below(100) < throwing;
    }
    program.steps.push_back(std::move(step));
  }
  // What is left behind is part of the answer.
  for (int r = 0; r < program.resources; ++r) {
    program.steps.push_back({.kind = Step::kWaitReadable, .resource = r, .reads = {}, .writes = {}});
  }
  return program;
}

void run_task(const Step& task, Memory& memory) {
  std::uint64_t word = stir(1, static_cast<std::uint64_t>(task.id));
  for (const int r : task.reads) word = stir(word, memory[r]);
  for (std::size_t i = 0; i < task.writes.size(); ++i) {
    if (task.throws && i == task.writes.size() / 2) break;
    memory[task.writes[i]] = stir(word, i);
  }
  if (task.throws) throw std::runtime_error("as told");
}

std::string task_name(int id) { return "t" + std::to_string(id); }

Trail interpret(const Program& program) {
  struct State {
    int failed_by = -1;
    bool torn = false;
  };
  Trail trail{.memory = Memory(program.resources), .answers = {}, .counters = {}};
  std::vector<State> states(program.resources);
  std::set<int> untold;
  const auto tell = [&](int id) {
    untold.erase(id);
    trail.answers.push_back(id < 0 ? "ok" : task_name(id));
  };
  for (const Step& step : program.steps) {
    State& state = states[step.resource];
    switch (step.kind) {
      case Step::kSuccessor:
        state = {};
        break;
      case Step::kWaitUnused:
        break;
      case Step::kWaitReadable:
        tell(state.failed_by);
        break;
      case Step::kWaitAll:
        tell(untold.empty() ? -1 : *untold.begin());
        break;
      case Step::kForgive:
        if (!state.torn) state.failed_by = -1;
        trail.answers.push_back(state.torn ? "torn" : "forgiven");
        break;
      case Step::kTask: {
        int failed_by = -1;
        for (const int r : step.reads) {
          const int id = states[r].failed_by;
          if (id >= 0 && (failed_by < 0 || id < failed_by)) failed_by = id;
        }
        const bool skipped = failed_by >= 0;
        if (!skipped) {
          try {
            run_task(step, trail.memory);
          } catch (const std::runtime_error&) {
            failed_by = step.id;
            untold.insert(step.id);
          }
        }
        for (const int w : step.writes) {
          states[w].failed_by = failed_by;
          if (!skipped) states[w].torn = step.throws;
        }
        ++trail.counters.pushed;
        ++trail.counters.completed;
        trail.counters.skipped += skipped;
        trail.counters.failed += !skipped && step.throws;
        break;
      }
    }
  }
  return trail;
}

int seed_count() {
  const char* text = std::getenv("LOCKSTEP_SEEDS");
  return text ? std::max(1, std::atoi(text)) : 1000;
}

}  // namespace lockstep::testing_engine
