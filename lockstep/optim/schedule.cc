#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/plain_math.h"

namespace lockstep {
double scheduled_lr(const ScheduleOptions& o, std::int64_t step) {
  check(o.warmup >= 0 && o.total_steps >= 0 && o.step_size >= 0 && step >= 0,
        "schedule: warm-up {}, {} steps in all, step size {}, step {}: expected at least 0", o.warmup, o.total_steps,
        o.step_size, step);
  check(o.base_lr.has_value(), "schedule: base_lr is not set, expected the learning rate after the warm-up");
  const double base = *o.base_lr;
  if (o.lr_lambda) {
    check(o.kind == ScheduleKind::constant && o.warmup == 0,
          "schedule: lr_lambda is the whole schedule, expected no other kind and no warm-up");
    return base * o.lr_lambda(step);
  }
  if (step < o.warmup) return base * static_cast<double>(step + 1) / static_cast<double>(o.warmup);
  std::int64_t done = step - o.warmup;
  std::int64_t rest = std::max<std::int64_t>(o.total_steps - o.warmup, 1);
  switch (o.kind) {
    case ScheduleKind::constant: return base;
    case ScheduleKind::step: {
      std::int64_t size = o.step_size > 0 ? o.step_size : std::max<std::int64_t>((rest + 2) / 3, 1);
      return base * plain_power(o.gamma, done / size);
    }
    case ScheduleKind::cosine: {
      double t = std::min(1.0, static_cast<double>(done) / static_cast<double>(rest));
      return base * (1 + plain_unit_vector(static_cast<std::uint32_t>(t * 0x1p31)).cosine) / 2;
    }
  }
  fail("schedule: unknown kind");
}

}  // namespace lockstep
