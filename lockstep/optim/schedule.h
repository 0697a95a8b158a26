// Learning-rate schedules. They are pure functions of the step, so a checkpoint need not store them.
//
//   optimizer.set_learning_rate(scheduled_lr({.kind = ScheduleKind::cosine, .total_steps = 1000}, optimizer.steps()));
#pragma once

#include <cstdint>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

enum class ScheduleKind { constant, step, cosine };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  double base_lr = 0.1;
  // Number of steps in which the rate grows linearly from base_lr / warmup to base_lr.
  std::int64_t warmup = 0;
  // Number of steps of the whole job. A cosine schedule reaches 0 there.
  std::int64_t total_steps = 0;
  // `step` multiplies the rate by gamma every step_size steps. 0: a third of the steps after the warm-up.
  std::int64_t step_size = 0;
  double gamma = 0.1;
};

// The learning rate of step `step`, counting from 0.
double scheduled_lr(const ScheduleOptions& options, std::int64_t step);

}  // namespace lockstep
