// Samples in a second of training, over the last few steps: the host hears of steps in bursts, so the time between two of them
// says nothing.
#pragma once

#include <cstdint>
#include <deque>

namespace lockstep {

class RateMeter {
 public:
  // The clock runs from start() to stop(): evaluation and checkpoints are between two such times. Times are in seconds.
  void start(double time);
  void stop(double time);
  // A step of so many samples is done: the rate of it and those before, back to the start at most.
  double add(double time, std::int64_t samples);
  // Of the last step alone: since the one before was heard of, bursts and all.
  double seconds() const { return steps_.back().time - steps_[steps_.size() - 2].time; }

 private:
  struct Step {
    double time;
    std::int64_t samples;
  };
  std::deque<Step> steps_;  // the first one is where the time begins: its samples do not count
  double stopped_ = 0;
};

}  // namespace lockstep
