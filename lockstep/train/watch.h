// A metric that decides when a run ends, and which checkpoint is the best.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/checkpoint/training_checkpoint.h"

namespace LOCKSTEP_API lockstep {

struct WatchOptions {
  // The name of a metric of the options, "accuracy", or "train_loss". Empty: nothing is watched.
  std::string metric{};
  // The smallest value is the best, as of a perplexity; otherwise the largest.
  bool smallest = false;
  // A value is better only if it is so by more than this.
  double min_delta = 0;
  // The run ends after so many epochs without a better value. 0: it does not.
  std::int64_t patience = 0;
  // Keeps the checkpoint of the best epoch in the folder "best" of the save folder.
  bool save_best = false;
};

// The first epoch whose value no later one betters; 0 if no epoch has a value. Throws, with the names that there are, if
// an epoch does not have the metric.
std::int64_t best_epoch(std::span<const EpochRecord> epochs, const WatchOptions& options);
// Whether the patience is over.
bool stops_early(std::span<const EpochRecord> epochs, const WatchOptions& options);

}  // namespace lockstep
