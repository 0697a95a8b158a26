// Watches a metric over epochs: decides when a run ends, and which checkpoint is the best.
//
//   Trainer trainer(net, sgd, train, test, {.epochs = 100, .watch = {.metric = "accuracy", .patience = 5}});
//
// A loop of your own calls best_epoch() and stops_early() after each epoch, as Trainer does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/export.h"
#include "lockstep/checkpoint/epoch_report.h"

namespace LOCKSTEP_API lockstep {

// A metric that decides when a run ends, and which checkpoint is the best.
struct WatchOptions {
  // The name of a metric of TrainerOptions::metrics, "accuracy", or "train_loss". Empty: nothing is watched.
  std::string metric{};
  // True: the smallest value is the best, as for a perplexity. False: the largest. Not set: true for "train_loss" and
  // for metrics with Metric::smaller_is_better.
  std::optional<bool> smallest = {};
  // A value counts as better only if it is better by more than this.
  double min_delta = 0;
  // The run ends after this many epochs without a better value. 0: never.
  std::int64_t patience = 0;
  // Keeps the checkpoint of the best epoch in the folder "best" of the save folder. The save folder gets a checkpoint
  // of that step first, so its newest checkpoint is never older than "best", even if the run is killed.
  bool save_best = false;
};

// Returns the best epoch: the last one that betters the best before it by more than min_delta; 0 if no epoch has a
// value. NaN is no value. If an epoch lacks the metric, throws with the names that it has. Does not know
// Metric::smaller_is_better: without `smallest`, the largest value is the best, but for "train_loss".
std::int64_t best_epoch(std::span<const EpochReport> epochs, const WatchOptions& options);
// Returns whether `patience` epochs have passed without a better value.
bool stops_early(std::span<const EpochReport> epochs, const WatchOptions& options);

}  // namespace lockstep
