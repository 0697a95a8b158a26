#include "lockstep/train/training_clock.h"

namespace lockstep {

void TrainingClock::start() {
  begin_ = RateMeter::now();
  rate_.start(begin_);
  data_.reset();
}

void TrainingClock::stop(TrainingPosition& position) {
  const double end = RateMeter::now();
  rate_.stop(end);
  position.seconds += end - begin_;
  position.data_seconds += data_.seconds();
}

void TrainingClock::add(StepReport& report) {
  report.images_per_second = rate_.add(RateMeter::now(), report.samples);
  report.seconds = rate_.seconds();
}

}  // namespace lockstep
