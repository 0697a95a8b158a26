// Internal: measures samples per second of training, over the last few steps. Reports of steps reach the host in
// bursts, so the time between two reports is not the time of a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "lockstep/base/export.h"

namespace lockstep {

class RateMeter {
 public:
  // Returns the current time for start(), stop(), and add().
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // The clock runs from start() to stop(), so it stands during evaluation and checkpoints. Times are in seconds. stop()
  // does nothing if the clock stands.
  void start(double time);
  void stop(double time);
  // Adds a step. Returns the rate over this step and up to seven before it, back to the first start() at most.
  double add(double time, std::int64_t samples);
  // Returns the time between the last two calls of add(), or between start() and the only call.
  double seconds() const { return steps_.back().time - steps_[steps_.size() - 2].time; }

 private:
  struct Step {
    double time;
    std::int64_t samples;
  };
  std::deque<Step> steps_;  // the first entry is where the time begins: its samples do not count
  double stopped_ = 0;
  bool runs_ = false;
};

}  // namespace lockstep
