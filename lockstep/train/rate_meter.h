// Internal: samples per second of training, over the last few steps. Reports of steps reach the host in bursts, so the
// time between two of them is not the time of a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "lockstep/base/export.h"

namespace lockstep {

class RateMeter {
 public:
  // The time that start(), stop() and add() are given.
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // The clock runs from start() to stop(), and stands during evaluation and checkpoints. Times are in seconds. stop()
  // does nothing while it stands.
  void start(double time);
  void stop(double time);
  // Adds a step. Returns the rate over this step and those before it, back to the start at most.
  double add(double time, std::int64_t samples);
  // The time since the call of add() before, or since start().
  double seconds() const { return steps_.back().time - steps_[steps_.size() - 2].time; }

 private:
  struct Step {
    double time;
    std::int64_t samples;
  };
  std::deque<Step> steps_;  // the time begins at the first one: its samples do not count
  double stopped_ = 0;
  bool runs_ = false;
};

}  // namespace lockstep
