// A recording on GPUs as one task, which launches a CUDA graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/recording.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {

class StepGraph {
 public:
  // Captures the tasks, which do not run. All devices whose lanes they are on have to be in `devices`; both outlive this.
  // Throws where a GPU cannot do such a task as part of a graph.
  StepGraph(const Recording& tasks, std::vector<DeviceState*> devices);
  // Waits for the last launch.
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Why there can be none: "convert runs on cpu:0"; empty: there can.
  static std::string why_not(const Recording& tasks, const std::vector<DeviceState*>& devices);

  // Pushes the task. While the timeline is kept it has the times of the recorded ones.
  void repeat();

 private:
  struct Instance;
  struct Lane;

  std::unique_ptr<Instance> capture(bool timed) const;
  // The next one with times; null where there are none.
  Instance* timed_instance();

  const Recording& tasks_;
  const std::vector<DeviceState*> devices_;
  Engine& engine_;
  std::vector<Resource> reads_, writes_;
  std::unique_ptr<Instance> plain_;
  // In turn: the times of one are read while others run.
  std::vector<std::unique_ptr<Instance>> timed_;
  std::size_t next_timed_ = 0;
  bool times_ = true;  // until it is found that there is no memory for them, say
};

}  // namespace lockstep
