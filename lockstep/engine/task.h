// A piece of work and what it touches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/inline_function.h"
#include "lockstep/base/small_vector.h"
#include "lockstep/engine/resource.h"

namespace LOCKSTEP_API lockstep {

// Made by Engine::add_lane.
struct LaneId {
  int index = -1;
  bool operator==(const LaneId&) const = default;
};

class Stream;

// One of several tasks that a task does as one: for the timeline, which shows these instead.
struct TaskPart {
  std::string_view name;  // outlives the task's work
  LaneId lane;
  // Timed tickets of the lane's stream that the task itself runs on.
  std::uint64_t begin = 0, end = 0;
};

// What a running task is given.
struct TaskContext {
  LaneId lane;
  void* lane_data = nullptr;                // LaneOptions::lane_data
  Stream* stream = nullptr;                 // LaneOptions::stream
  std::vector<TaskPart>* parts = nullptr;  // on a stream, while the timeline is kept: where to name them
};

struct Task {
  // In the field's words and of static lifetime where it can be: "conv2d", "all-reduce".
  std::string name = {};
  LaneId lane = {};
  SmallVector<Resource, 4> reads = {};
  // Written as a whole. Data that is changed in part or in place is both read and written.
  SmallVector<Resource, 4> writes = {};
  // Must keep what it touches alive. Closures up to 64 bytes need no allocation.
  InlineFunction<void(const TaskContext&), 64> run = {};
};

}  // namespace lockstep
