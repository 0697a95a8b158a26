// Learning-rate schedules: pure functions of the step, so that a resumed run needs no state of theirs.
#pragma once

#include <cstdint>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

enum class ScheduleKind { constant, step, cosine };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  double base_lr = 0.1;
  // Steps of linear growth from base_lr / warmup to base_lr.
  std::int64_t warmup = 0;
  // All steps of the job: where cosine reaches 0.
  std::int64_t total_steps = 0;
  // `step`: times gamma every step_size steps; 0: a third of what follows the warm-up.
  std::int64_t step_size = 0;
  double gamma = 0.1;
};

// The learning rate of step `step`, counting from 0.
double scheduled_lr(const ScheduleOptions& options, std::int64_t step);

}  // namespace lockstep
