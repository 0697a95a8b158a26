// How long lanes are busy with a part of their tasks, so without the time in which they wait. What a device computes for
// training is measured so: lanes run behind the host, and wait for each other, which a clock of the host would count.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/engine/engine.h"

namespace LOCKSTEP_API lockstep {

class Stopwatch {
 public:
  // On a lane with a stream the device's times count. Such a lane has one stopwatch at a time.
  Stopwatch(std::shared_ptr<Engine> engine, std::vector<LaneId> lanes);

  // Measures the tasks that are pushed to the lanes between the two calls. Neither waits: each pushes a task to each lane.
  void start();
  void stop();
  // The times measured since the last call, by lane. Waits for the tasks up to the last stop().
  std::vector<std::chrono::nanoseconds> take();

 private:
  void push(bool starts);

  std::shared_ptr<Engine> engine_;
  std::vector<LaneId> lanes_;
  Resource marks_;  // what the tasks of start() and stop() read, to be waited for
  std::shared_ptr<std::vector<std::chrono::nanoseconds>> times_;
};

}  // namespace lockstep
