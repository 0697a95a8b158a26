#include "lockstep/train/rate_meter.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void RateMeter::start(double time) {
  // Moves the steps by the length of the pause, as if there had been none.
  for (Step& step : steps_) step.time += time - stopped_;
  if (steps_.empty()) steps_.push_back({time, 0});
  runs_ = true;
}

void RateMeter::stop(double time) {
  if (std::exchange(runs_, false)) stopped_ = time;
}

double RateMeter::add(double time, std::int64_t samples) {
  constexpr std::size_t kSteps = 8;
  steps_.push_back({time, samples});
  if (steps_.size() > kSteps + 1) steps_.pop_front();
  std::int64_t sum = 0;
  for (std::size_t i = 1; i < steps_.size(); ++i) sum += steps_[i].samples;
  return static_cast<double>(sum) / std::max(time - steps_.front().time, 1e-9);
}

}  // namespace lockstep
