// Internal: the time of a training: of the epoch in progress, of its waits for data, and of its steps. The clock runs
// from start() to stop(), so it stands during tests and checkpoints.
#pragma once

#include <functional>
#include <span>

#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/device/device.h"
#include "lockstep/train/data_wait.h"
#include "lockstep/train/rate_meter.h"
#include "lockstep/train/training_result.h"

namespace lockstep {

class TrainingClock {
 public:
  explicit TrainingClock(std::span<const Device> devices) : data_(devices) {}
  void start();
  // Adds the time since start() to that of the position's epoch, so a run that resumes from it continues the clock.
  void stop(TrainingPosition& position);
  // The time since start() is that of no epoch. Does nothing if the clock stands.
  void stop() { rate_.stop(RateMeter::now()); }
  // Calls `take`, which takes the next batch: see DataWait.
  void measure(const std::function<void()>& take) { data_.measure(take); }
  // Adds a step that has ended. Sets the report's time and speed.
  void add(StepReport& report);

 private:
  RateMeter rate_;
  DataWait data_;
  double begin_ = 0;
};

}  // namespace lockstep
