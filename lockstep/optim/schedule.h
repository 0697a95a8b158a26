// Learning-rate schedules. They are pure functions of the step, so a checkpoint need not store them.
//
//   const ScheduleOptions cosine{.kind = ScheduleKind::cosine, .base_lr = 0.1, .total_steps = 1000};
//   optimizer.set_learning_rate(scheduled_lr(cosine, optimizer.steps()));
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

enum class ScheduleKind { constant, step, cosine };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  // scheduled_lr() needs it. Not set, Trainer takes the optimizer's base_learning_rate().
  std::optional<double> base_lr = {};
  // Number of warm-up steps, in which the rate grows linearly from base_lr / warmup to base_lr.
  std::int64_t warmup = 0;
  // Number of steps of the whole job. A cosine schedule reaches 0 there.
  std::int64_t total_steps = 0;
  // `step` multiplies the rate by gamma every step_size steps. 0: a third of the steps after the warm-up.
  std::int64_t step_size = 0;
  double gamma = 0.1;
  // A schedule of your own, like PyTorch's LambdaLR: the factor of base_lr in step `step`, counted from 0. It must be a
  // pure function, so that a resumed run goes on with the same rates. Set neither `kind` nor `warmup` with it.
  std::function<double(std::int64_t step)> lr_lambda = {};
};

// The learning rate of step `step`, counting from 0. After the warm-up, with t = step - warmup:
//   constant: base_lr
//   step:     base_lr gamma^floor(t / step_size)
//   cosine:   base_lr (1 + cos(pi t / (total_steps - warmup))) / 2 (Loshchilov and Hutter 2017, without restarts);
//             0 from total_steps on
// With lr_lambda: base_lr lr_lambda(step). Throws if a number of steps is negative.
double scheduled_lr(const ScheduleOptions& options, std::int64_t step);

}  // namespace lockstep
