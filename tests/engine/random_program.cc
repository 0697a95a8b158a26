#include "tests/engine/random_program.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

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
  Program program{.resources = 1 + below(8), .lanes = 1 + below(4), .tasks = 0, .steps = {}};
  const int steps = 20 + below(100);
  const int throwing = below(3) == 0 ? 0 : 2 + below(20);  // percent
  const int waiting = below(3) * 8;                        // percent
  const auto some = [&](int most) {
    std::vector<int> resources;  // now and then one twice
    for (int n = below(most + 1); n > 0; --n) resources.push_back(below(program.resources));
    return resources;
  };
  const int cancelling = below(2) * 3;  // percent
  bool may_cancel = true;
  for (int i = 0; i < steps; ++i) {
    Step step{.resource = below(program.resources), .reads = {}, .writes = {}};
    if (below(100) < waiting) {
      constexpr Step::Kind kWaits[] = {Step::kWaitReadable, Step::kWaitUnused, Step::kWaitAll, Step::kForgive};
      step.kind = kWaits[below(4)];
      may_cancel |= step.kind == Step::kWaitAll;
    } else if (may_cancel && below(100) < cancelling) {
      // The next one comes when all that this one may have cancelled is over.
      step.kind = Step::kCancel;
      may_cancel = false;
    } else if (below(100) < 10) {
      step.kind = Step::kSuccessor;
    } else {
      step.id = program.tasks++;
      step.lane = below(program.lanes);
      step.reads = some(i % 10 ? 3 : 8);
      step.writes = some(i % 10 ? 2 : 8);
      step.throws = below(100) < throwing;
    }
    program.steps.push_back(std::move(step));
  }
  // The values left behind are part of the answer.
  for (int r = 0; r < program.resources; ++r) {
    program.steps.push_back({.kind = Step::kWaitReadable, .resource = r, .reads = {}, .writes = {}});
  }
  return program;
}

Program random_updates(std::uint64_t seed) {
  Program program = random_program(seed);
  std::mt19937_64 random(seed);
  bool thrown = false;
  for (Step& step : program.steps) {
    step.updates = random() % 2 == 0;
    if (std::exchange(thrown, thrown || step.throws)) step.throws = false;
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

Trail interpret(const Program& program, const std::vector<char>* ran) {
  // The first cause, by the place of its step.
  struct Cause {
    int step = -1;
    std::string name = "ok";
  };
  struct State {
    Cause failed_by;
    bool torn = false;
    Cause omission;
  };
  Trail trail{.memory = Memory(program.resources), .answers = {}, .counters = {}, .ran = {}};
  trail.ran.resize(program.tasks);
  std::vector<State> states(program.resources);
  std::map<int, std::string> untold;  // by step
  // The last step whose cancellation came in time for a task of the lane.
  std::vector<int> cancelled_until(program.lanes, -1);
  const int steps = static_cast<int>(program.steps.size());
  const auto cancellation_after = [&](int i) {
    for (; i < steps && program.steps[i].kind != Step::kWaitAll; ++i) {
      if (program.steps[i].kind == Step::kCancel) return i;
    }
    throw std::logic_error("a task that nobody cancelled did not run");
  };
  for (int i = 0; i < steps; ++i) {
    const Step& step = program.steps[i];
    State& state = states[step.resource];
    switch (step.kind) {
      case Step::kSuccessor: state = {}; break;
      case Step::kWaitUnused:
      case Step::kCancel: break;
      case Step::kWaitReadable:
        if (state.failed_by.step < 0 && untold.erase(state.omission.step)) {
          trail.answers.push_back(state.omission.name);
          break;
        }
        untold.erase(state.failed_by.step);
        trail.answers.push_back(state.failed_by.name);
        break;
      case Step::kWaitAll:
        trail.answers.push_back(untold.empty() ? "ok" : untold.begin()->second);
        if (!untold.empty()) untold.erase(untold.begin());
        break;
      case Step::kForgive:
        if (!state.torn) state.failed_by = {};
        trail.answers.push_back(state.torn ? "torn" : "forgiven");
        break;
      case Step::kTask: {
        Cause cause;
        for (const int r : step.reads) {
          const Cause& read = states[r].failed_by;
          if (read.step >= 0 && (cause.step < 0 || read.step < cause.step)) cause = read;
        }
        const bool runs = cause.step < 0 && (!ran || (*ran)[step.id]);
        if (ran && (*ran)[step.id] != runs) throw std::logic_error("a task ran that had to be skipped");
        if (runs) {
          if (i < cancelled_until[step.lane]) throw std::logic_error("a task ran behind a cancelled one");
          trail.ran[step.id] = 1;
          try {
            run_task(step, trail.memory);
          } catch (const std::runtime_error&) {
            cause = {i, task_name(step.id)};
            untold[i] = cause.name;
          }
        } else if (cause.step < 0) {
          cause = {cancelled_until[step.lane] = cancellation_after(i), "cancelled"};
        }
        const bool fails = !runs && cause.name != "cancelled", keeps = fails && step.updates;
        for (const int r : step.reads) {
          if (fails && states[r].failed_by.step != cause.step) untold.erase(states[r].failed_by.step);
        }
        for (const int w : step.writes) {
          if (keeps && std::ranges::count(step.reads, w)) continue;
          states[w].failed_by = cause;
          if (runs) states[w].torn = step.throws;
        }
        Cause omission;
        if (keeps && untold.contains(cause.step)) omission = cause;
        for (const int r : step.reads) {
          const Cause& read = states[r].omission;
          if (untold.contains(read.step) && (omission.step < 0 || read.step < omission.step)) omission = read;
        }
        for (const int w : step.writes) states[w].omission = omission;
        ++trail.counters.pushed;
        ++trail.counters.completed;
        trail.counters.skipped += !runs;
        trail.counters.failed += runs && step.throws;
        break;
      }
    }
  }
  return trail;
}

int seed_count() {
  const char* text = std::getenv("LOCKSTEP_SEEDS");
  return text ? std::max(1, std::atoi(text)) : 500;
}

}  // namespace lockstep::testing_engine
