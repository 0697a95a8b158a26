// A lane of an engine: what it is called, its worker, and the one task of it that may run now.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/parker.h"
#include "lockstep/engine/trace.h"

namespace lockstep {

struct Lane {
  explicit Lane(LaneOptions lane_options);
  // "cpu:0 compute 0"
  std::string full_name() const;
  // Names the calling thread after the lane, binds it to the lane's cores and runs on_start. Throws.
  void start_worker() const;

  const LaneOptions options;

  // Under the engine's lock.
  TaskNode* ready = nullptr;
  bool idle = false;           // its worker parks, or is about to
  Lane* next_woken = nullptr;  // of those that one critical section wakes
  std::shared_ptr<TraceLane> trace;

  Parker parker;
  std::thread worker;  // none in the serial engine
};

}  // namespace lockstep
