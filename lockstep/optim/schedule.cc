#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/plain_math.h"

namespace lockstep {
namespace {

// From 1 at t = 0 to 0 at t = 1, along a cosine.
double half_cosine(double t) { return (1 + plain_unit_vector(static_cast<std::uint32_t>(t * 0x1p31)).cosine) / 2; }

double ratio(std::int64_t a, std::int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// PyTorch's OneCycleLR with anneal_strategy "cos". The steps at which the phases end may be fractions.
double one_cycle(const ScheduleOptions& o, double most, std::int64_t step) {
  const double first = most / o.div_factor, last = first / o.final_div_factor;
  const auto total = static_cast<double>(std::max<std::int64_t>(o.total_steps, 1)), at = static_cast<double>(step);
  const double peak = o.pct_start * total - 1, end = total - 1;
  if (at >= end) return last;
  if (at <= peak) return peak > 0 ? most + (first - most) * half_cosine(at / peak) : most;
  return last + (most - last) * half_cosine((at - peak) / (end - peak));
}

void check_schedule(const ScheduleOptions& o, std::int64_t step) {
  check(o.warmup >= 0 && o.total_steps >= 0 && o.step_size >= 0 && step >= 0,
        "schedule: warm-up {}, {} steps in all, step size {}, step {}: expected at least 0", o.warmup, o.total_steps,
        o.step_size, step);
  check(o.base_lr.has_value(), "schedule: base_lr is not set, expected the learning rate after the warm-up");
  check(std::isfinite(o.min_lr) && o.min_lr >= 0, "schedule: min_lr {}, expected at least 0", o.min_lr);
  check(o.kind != ScheduleKind::cosine_restarts || (o.restart_steps >= 1 && o.restart_factor >= 1),
        "schedule: cosine_restarts with {} steps and factor {}, expected at least 1", o.restart_steps,
        o.restart_factor);
  check(std::ranges::is_sorted(o.milestones) && (o.milestones.empty() || o.milestones[0] >= 0),
        "schedule: milestones are not ascending, expected steps of at least 0 in their order");
  check(o.kind != ScheduleKind::one_cycle ||
            (o.warmup == 0 && o.pct_start >= 0 && o.pct_start <= 1 && o.div_factor > 0 && o.final_div_factor > 0),
        "schedule: one_cycle with warm-up {}, pct_start {}, div_factor {}, final_div_factor {}: expected no warm-up, a "
        "share from 0 to 1, and factors above 0",
        o.warmup, o.pct_start, o.div_factor, o.final_div_factor);
}

}  // namespace

double scheduled_lr(const ScheduleOptions& o, std::int64_t step) {
  check_schedule(o, step);
  const double base = *o.base_lr;
  if (o.lr_lambda) {
    check(o.kind == ScheduleKind::constant && o.warmup == 0,
          "schedule: lr_lambda is the whole schedule, expected no other kind and no warm-up");
    return base * o.lr_lambda(step);
  }
  if (step < o.warmup) return base * ratio(step + 1, o.warmup);
  std::int64_t done = step - o.warmup;
  std::int64_t rest = std::max<std::int64_t>(o.total_steps - o.warmup, 1);
  switch (o.kind) {
    case ScheduleKind::constant: return base;
    case ScheduleKind::step: {
      std::int64_t size = o.step_size > 0 ? o.step_size : std::max<std::int64_t>((rest + 2) / 3, 1);
      return base * plain_power(o.gamma, done / size);
    }
    case ScheduleKind::cosine: {
      double t = std::min(1.0, ratio(done, rest));
      if (o.min_lr != 0) return o.min_lr + (base - o.min_lr) * half_cosine(t);
      // Keep these roundings, because they decide the bits of existing runs.
      return base * (1 + plain_unit_vector(static_cast<std::uint32_t>(t * 0x1p31)).cosine) / 2;
    }
    case ScheduleKind::linear: return base + (o.min_lr - base) * std::min(1.0, ratio(done, rest));
    case ScheduleKind::multi_step: {
      const auto passed = std::ranges::upper_bound(o.milestones, done) - o.milestones.begin();
      return base * plain_power(o.gamma, passed);
    }
    case ScheduleKind::exponential: return base * plain_power(o.gamma, done);
    case ScheduleKind::cosine_restarts: {
      std::int64_t length = o.restart_steps;
      if (o.restart_factor == 1) done %= length;
      while (done >= length) {
        done -= length;
        length *= o.restart_factor;
      }
      return o.min_lr + (base - o.min_lr) * half_cosine(ratio(done, length));
    }
    case ScheduleKind::one_cycle: return one_cycle(o, base, step);
  }
  fail("schedule: unknown kind");
}

Rate::Rate(ScheduleOptions schedule) : schedule_(std::move(schedule)) {
  const ScheduleOptions& o = schedule_;
  const bool has_end = o.kind == ScheduleKind::cosine || o.kind == ScheduleKind::linear ||
                       o.kind == ScheduleKind::one_cycle || (o.kind == ScheduleKind::step && o.step_size == 0);
  check(!has_end || o.total_steps > 0, "schedule: 0 steps in all, expected the number of steps of the run");
  at(0);
}

bool is_scheduled(const ScheduleOptions& o) { return o.kind != ScheduleKind::constant || o.warmup > 0 || o.lr_lambda; }

Rate cosine_lr(double lr, const DecayOptions& o) {
  return ScheduleOptions{
      .kind = ScheduleKind::cosine, .base_lr = lr, .warmup = o.warmup, .total_steps = o.steps, .min_lr = o.min_lr};
}

Rate linear_lr(double lr, const DecayOptions& o) {
  return ScheduleOptions{
      .kind = ScheduleKind::linear, .base_lr = lr, .warmup = o.warmup, .total_steps = o.steps, .min_lr = o.min_lr};
}

Rate step_lr(double lr, std::int64_t step_size, double gamma) {
  check(step_size >= 1, "step_lr: a step size of {}, expected at least 1", step_size);
  return ScheduleOptions{.kind = ScheduleKind::step, .base_lr = lr, .step_size = step_size, .gamma = gamma};
}

Rate multi_step_lr(double lr, std::vector<std::int64_t> milestones, double gamma) {
  return ScheduleOptions{
      .kind = ScheduleKind::multi_step, .base_lr = lr, .gamma = gamma, .milestones = std::move(milestones)};
}

Rate exponential_lr(double lr, double gamma) {
  return ScheduleOptions{.kind = ScheduleKind::exponential, .base_lr = lr, .gamma = gamma};
}

Rate cosine_restarts_lr(double lr, const RestartOptions& o) {
  return ScheduleOptions{.kind = ScheduleKind::cosine_restarts,
                         .base_lr = lr,
                         .min_lr = o.min_lr,
                         .restart_steps = o.steps,
                         .restart_factor = o.factor};
}

Rate one_cycle_lr(double max_lr, const OneCycleOptions& o) {
  return ScheduleOptions{.kind = ScheduleKind::one_cycle,
                         .base_lr = max_lr,
                         .total_steps = o.steps,
                         .pct_start = o.pct_start,
                         .div_factor = o.div_factor,
                         .final_div_factor = o.final_div_factor};
}

Rate lambda_lr(double lr, std::function<double(std::int64_t step)> factor) {
  check(factor != nullptr, "lambda_lr: an empty function, expected the factor of each step");
  return ScheduleOptions{.base_lr = lr, .lr_lambda = std::move(factor)};
}

}  // namespace lockstep
