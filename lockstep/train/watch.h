// Internal: applies WatchOptions: decides when a run ends, and which checkpoint is the best.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/train/trainer.h"

namespace lockstep {

// Returns the best epoch: the last one that betters the best before it by more than min_delta; 0 if no epoch has a
// value. NaN is no value. If an epoch lacks the metric, throws with the names that it has.
std::int64_t best_epoch(std::span<const EpochReport> epochs, const WatchOptions& options);
// Returns whether `patience` epochs have passed without a better value.
bool stops_early(std::span<const EpochReport> epochs, const WatchOptions& options);

}  // namespace lockstep
