// Internal: a piece of work and the data it touches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/inline_function.h"
#include "lockstep/base/small_vector.h"
#include "lockstep/engine/failure.h"
#include "lockstep/engine/failure_group.h"
#include "lockstep/engine/resource.h"

namespace lockstep {

// Made by Engine::add_lane.
struct LaneId {
  int index = -1;
  bool operator==(const LaneId&) const = default;
};

class Stream;

// One of several tasks that run as a single task. The timeline shows these parts instead of the single task.
struct TaskPart {
  std::string_view name;  // outlives the task's work
  LaneId lane;
  // Timed tickets on the stream of the single task, not on the stream of `lane`.
  std::uint64_t begin = 0, end = 0;
};

// The argument of a running task.
struct TaskContext {
  LaneId lane;
  void* lane_data = nullptr;               // LaneOptions::lane_data
  Stream* stream = nullptr;                // LaneOptions::stream
  std::vector<TaskPart>* parts = nullptr;  // on a stream, while a timeline is recorded: the task lists its parts here
  const Failure* skipped = nullptr;        // why the task is skipped; see Task::told_if_skipped
};

// Most tasks have at most 8 resources to read or write; more are on the heap.
using Resources = SmallVector<Resource, 8>;
// The function must keep what it touches alive. Closures up to 768 bytes need no allocation.
using TaskFunction = InlineFunction<void(const TaskContext&), 768>;

struct Task {
  // The usual name of the operation: "conv2d", "all-reduce".
  std::string name = {};
  LaneId lane = {};
  Resources reads = {};
  // Data written as a whole. Data changed in part or in place is both read and written.
  Resources writes = {};
  // The task updates lasting data, such as weights. If the task is skipped because other data has failed, what it both
  // reads and writes keeps its value and stays good.
  bool updates = false;
  // Whether the task must know that it is skipped, because others wait for it: its function then runs with
  // TaskContext::skipped set, and must touch no data.
  bool told_if_skipped = false;
  // Null: that of the thread's FailureScope, if there is one.
  std::shared_ptr<FailureGroup> group = {};
  TaskFunction run = {};
};

}  // namespace lockstep
