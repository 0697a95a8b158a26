// Learning-rate schedules. They are pure functions of the step, so a checkpoint need not store them. A rate is a number
// or a schedule:
//
//   Sgd sgd(net.parameters(), {.lr = cosine_lr(0.1, {.steps = 5000, .warmup = 200})});
//
// Trainer knows the number of steps, so its option needs none: {.schedule = {.kind = ScheduleKind::cosine}}.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

enum class ScheduleKind { constant, step, cosine, linear, multi_step, exponential, cosine_restarts, one_cycle };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  // scheduled_lr() needs it. If it is not set, Trainer takes the optimizer's base_learning_rate(). one_cycle's peak.
  std::optional<double> base_lr = {};
  // Number of warm-up steps, in which the rate grows linearly from base_lr / warmup to base_lr.
  std::int64_t warmup = 0;
  // Number of steps of the whole job. cosine and linear reach min_lr there, one_cycle its last rate.
  std::int64_t total_steps = 0;
  // `step` multiplies the rate by gamma every step_size steps. 0: a third of the steps after the warm-up.
  std::int64_t step_size = 0;
  // The factor of step, multi_step, and exponential; exponential applies it in each step.
  double gamma = 0.1;
  // A schedule of your own, like PyTorch's LambdaLR: the factor of base_lr in step `step`, counted from 0. It must be a
  // pure function, so that a resumed run goes on with the same rates. Set neither `kind` nor `warmup` with it.
  std::function<double(std::int64_t step)> lr_lambda = {};
  // PyTorch's eta_min, of cosine, linear, and cosine_restarts.
  double min_lr = 0;
  // multi_step multiplies the rate by gamma after each of these numbers of steps, counted after the warm-up; ascending.
  std::vector<std::int64_t> milestones = {};
  // The length of the first cosine of cosine_restarts, PyTorch's T_0, and the factor of each next length, T_mult.
  std::int64_t restart_steps = 0;
  std::int64_t restart_factor = 1;
  // one_cycle (Smith and Topin 2018) begins at base_lr / div_factor, reaches base_lr after the share pct_start of
  // total_steps, and ends at its first rate / final_div_factor; along cosines, as in PyTorch.
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
};

// The learning rate of step `step`, counting from 0. After the warm-up, with t = step - warmup and T = total_steps -
// warmup:
//   constant:        base_lr
//   step:            base_lr gamma^floor(t / step_size)
//   cosine:          min_lr + (base_lr - min_lr) (1 + cos(pi t / T)) / 2 (Loshchilov and Hutter 2017); min_lr from T on
//   linear:          base_lr + (min_lr - base_lr) t / T; min_lr from T on
//   multi_step:      base_lr gamma^(number of milestones that are at most t)
//   exponential:     base_lr gamma^t
//   cosine_restarts: cosine over restart_steps, then over restart_steps restart_factor, and so on
// With lr_lambda: base_lr lr_lambda(step). Throws for options that no schedule has: a negative number of steps, say.
double scheduled_lr(const ScheduleOptions& options, std::int64_t step);

// Whether the rate depends on the step.
bool is_scheduled(const ScheduleOptions& options);

// A learning rate: a number, or a schedule that follows an optimizer's steps.
class Rate {
 public:
  Rate(double lr) : schedule_{.base_lr = lr} {}  // NOLINT(google-explicit-constructor)
  // Throws where scheduled_lr() does, and if the schedule needs total_steps and has none.
  Rate(ScheduleOptions schedule);  // NOLINT(google-explicit-constructor)

  // The rate of step `step`, counting from 0.
  double at(std::int64_t step) const { return scheduled_lr(schedule_, step); }
  // The number, or the schedule's base_lr.
  double base() const { return *schedule_.base_lr; }
  bool scheduled() const { return is_scheduled(schedule_); }
  const ScheduleOptions& schedule() const { return schedule_; }

 private:
  ScheduleOptions schedule_;
};

// A warm-up, and then CosineAnnealingLR of PyTorch, or a line down to min_lr, `steps` steps in all.
struct DecayOptions {
  std::int64_t steps = 0;
  std::int64_t warmup = 0;
  double min_lr = 0;
};
Rate cosine_lr(double lr, const DecayOptions& options);
Rate linear_lr(double lr, const DecayOptions& options);
// StepLR, MultiStepLR, ExponentialLR, CosineAnnealingWarmRestarts, OneCycleLR, LambdaLR, with steps instead of epochs.
Rate step_lr(double lr, std::int64_t step_size, double gamma = 0.1);
Rate multi_step_lr(double lr, std::vector<std::int64_t> milestones, double gamma = 0.1);
Rate exponential_lr(double lr, double gamma);
struct RestartOptions {
  std::int64_t steps = 0;   // of the first cosine
  std::int64_t factor = 1;  // of each next length
  double min_lr = 0;
};
Rate cosine_restarts_lr(double lr, const RestartOptions& options);
struct OneCycleOptions {
  std::int64_t steps = 0;
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
};
Rate one_cycle_lr(double max_lr, const OneCycleOptions& options);
Rate lambda_lr(double lr, std::function<double(std::int64_t step)> factor);

}  // namespace lockstep
