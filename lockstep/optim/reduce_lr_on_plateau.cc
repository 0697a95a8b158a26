#include "lockstep/optim/reduce_lr_on_plateau.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : optimizer_(optimizer), options_(options) {
  check(optimizer.schedule() == nullptr, "reduce_lr_on_plateau: the optimizer's learning rate is a schedule");
  check(options.factor >= 0 && options.factor < 1, "reduce_lr_on_plateau: factor {}, expected at least 0 and below 1",
        options.factor);
  check(options.patience >= 0 && options.cooldown >= 0 && options.threshold >= 0 && options.min_lr >= 0,
        "reduce_lr_on_plateau: patience {}, cooldown {}, threshold {}, min_lr {}: expected at least 0",
        options.patience, options.cooldown, options.threshold, options.min_lr);
}

bool ReduceLROnPlateau::is_better(double value) const {
  if (!state_.best) return !std::isnan(value);
  const double best = *state_.best, by = options_.absolute ? options_.threshold : options_.threshold * best;
  return options_.larger_is_better ? value > best + by : value < best - by;
}

bool ReduceLROnPlateau::falls(double value) {
  if (is_better(value)) {
    state_.best = value;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.cooling > 0) {
    --state_.cooling;
    state_.bad = 0;
  }
  if (state_.bad <= options_.patience) return false;
  state_.cooling = options_.cooldown;
  state_.bad = 0;
  return true;
}

void ReduceLROnPlateau::replay(double value) { falls(value); }

bool ReduceLROnPlateau::step(double value) {
  const auto before = state_;
  if (!falls(value)) return false;
  const bool scheduled = optimizer_.learning_rate() != optimizer_.base_learning_rate();
  if (scheduled) state_ = before;
  check(!scheduled,
        "reduce_lr_on_plateau: a schedule has set the rate to {}, and will replace a lower one: expected a constant "
        "rate, as without TrainerOptions::schedule",
        optimizer_.learning_rate());
  const double old = optimizer_.learning_rate(), lower = std::max(old * options_.factor, options_.min_lr);
  if (old - lower <= options_.eps) return false;
  optimizer_.set_learning_rate(lower);
  return true;
}

}  // namespace lockstep
