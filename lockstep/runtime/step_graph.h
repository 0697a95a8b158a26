// Internal: turns a recording on GPUs into one task that launches a CUDA graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/recording.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {

class StepGraph {
 public:
  // Captures the tasks without running them. `devices` must contain all devices of the tasks' lanes. The tasks and the
  // devices must outlive this object. Throws if a GPU cannot run such a task as part of a graph.
  StepGraph(const Recording& tasks, std::vector<DeviceState*> devices);
  // Waits for the last launch.
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Returns why a graph is impossible, "convert runs on cpu:0"; empty if it is possible.
  static std::string why_not(const Recording& tasks, const std::vector<DeviceState*>& devices);

  // Pushes the task. While a timeline is recorded, it gets the times of the recorded tasks.
  void repeat();

 private:
  struct Instance;
  struct CapturedLane;

  std::unique_ptr<Instance> capture(bool timed) const;
  // Returns the next instance with times; null if no times are taken.
  Instance* timed_instance();

  const Recording& tasks_;
  const std::vector<DeviceState*> devices_;
  Engine& engine_;
  std::vector<Resource> reads_, writes_;
  std::unique_ptr<Instance> plain_;
  // Used in turn: the times of one are read while others run.
  std::vector<std::unique_ptr<Instance>> timed_;
  std::size_t next_timed_ = 0;
  bool times_ = true;  // false once timed graphs fail, for lack of memory for example
};

}  // namespace lockstep
