// Internal: measures how long lanes are busy with some of their tasks, without waiting time. This measures a device's
// work in training: lanes lag the host and wait for each other, so the host's clock would include the waiting.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/engine/engine.h"

namespace lockstep {

class Stopwatch {
 public:
  // On a lane with a stream, the device's times count. Such a lane can have only one stopwatch at a time.
  Stopwatch(std::shared_ptr<Engine> engine, std::vector<LaneId> lanes);

  // Measures the tasks that are pushed to the lanes between the two calls. Neither waits: each pushes a task to each
  // lane.
  void start();
  void stop();
  // Returns the times measured since the last call, by lane. Waits for the tasks up to the last stop().
  std::vector<std::chrono::nanoseconds> take();

 private:
  void push(bool starts);

  std::shared_ptr<Engine> engine_;
  std::vector<LaneId> lanes_;
  Resource marks_;  // read by the tasks of start() and stop(), so that take() can wait for them
  std::shared_ptr<std::vector<std::chrono::nanoseconds>> times_;
};

}  // namespace lockstep
