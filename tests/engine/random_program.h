// Random programs over an engine, and what the documented rules make of them when everything runs in order.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lockstep/engine/engine.h"

namespace lockstep::testing_engine {

// One thing that the host does. Resources are named by their index.
struct Step {
  enum Kind { kTask, kSuccessor, kWaitReadable, kWaitUnused, kWaitAll, kForgive, kCancel };
  Kind kind = kTask;
  int resource = 0;  // of all but tasks
  int id = 0;        // of tasks: their number among the tasks
  int lane = 0;
  std::vector<int> reads;
  std::vector<int> writes;
  bool throws = false;
  bool updates = false;
};

struct Program {
  int resources = 0;
  int lanes = 0;
  int tasks = 0;
  std::vector<Step> steps;
};

Program random_program(std::uint64_t seed);
// The same with tasks that update data. Only one task throws: with several failures, it depends on chance which of them
// a wait reports as the reason of an omission.
Program random_updates(std::uint64_t seed);

// One word of data for each resource; successors share it, like memory that is handed out again.
using Memory = std::vector<std::uint64_t>;

// A task stirs what it reads into what it writes. One that throws first spoils half of its writes.
void run_task(const Step& task, Memory& memory);

// All that can be seen of a run.
struct Trail {
  Memory memory;
  // Each wait's or forgive's answer: the name of a failed task, "cancelled", "ok", "forgiven" or "torn".
  std::vector<std::string> answers;
  EngineCounters counters;
  // By task: whether it ran. Chance decides which tasks are cancelled in time.
  std::vector<char> ran;
};

std::string task_name(int id);

// Runs the steps one by one. With `ran`, of another run: cancels what did not run there. Throws where the rules do not
// allow what ran and what did not.
Trail interpret(const Program& program, const std::vector<char>* ran = nullptr);

int seed_count();

}  // namespace lockstep::testing_engine
