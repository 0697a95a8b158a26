// Internal: applies WatchOptions: decides when a run ends, and which checkpoint is the best.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/train/trainer.h"

namespace lockstep {

// The first epoch whose value no later one betters; 0 if no epoch has a value. Throws, with the names that there are,
// if an epoch does not have the metric.
std::int64_t best_epoch(std::span<const EpochReport> epochs, const WatchOptions& options);
// Whether the patience is over.
bool stops_early(std::span<const EpochReport> epochs, const WatchOptions& options);

}  // namespace lockstep
