#include "lockstep/engine/stopwatch.h"

namespace lockstep {

Stopwatch::Stopwatch(std::shared_ptr<Engine> engine, std::vector<LaneId> lanes)
    : engine_(std::move(engine)), lanes_(std::move(lanes)), marks_(engine_->make_resource()),
      times_(std::make_shared<std::vector<std::chrono::nanoseconds>>(lanes_.size())) {}

void Stopwatch::start() { push(true); }
void Stopwatch::stop() { push(false); }

// Tasks on the lane read its clock, so an interval always contains the same tasks, no matter when they run.
void Stopwatch::push(bool starts) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Task task;
    task.name = starts ? "start stopwatch" : "stop stopwatch";
    task.lane = lanes_[i];
    task.reads = {marks_};
    task.run = [engine = engine_.get(), times = times_, i, starts](const TaskContext& c) {
      if (c.stream) engine->time_launches(c.lane, starts);
      // A stream's time is known only when its work is over.
      if (!c.stream) (*times)[i] += starts ? -engine->busy(c.lane) : engine->busy(c.lane);
    };
    engine_->push(std::move(task));
  }
}

std::vector<std::chrono::nanoseconds> Stopwatch::take() {
  engine_->wait_unused(marks_);
  std::vector<std::chrono::nanoseconds> taken(lanes_.size());
  taken.swap(*times_);
  for (std::size_t i = 0; i < lanes_.size(); ++i) taken[i] += engine_->take_launched_time(lanes_[i]);
  return taken;
}

}  // namespace lockstep
