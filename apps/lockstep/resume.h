// A run that goes on from a checkpoint: what it takes from there, and how it says what does not fit.
#pragma once

#include "train_options.h"

namespace lockstep::app {

// Fills in what the user left open and the checkpoint knows: shards, threads per shard, the hash of the start weights. Throws
// if options.resume has no checkpoint.
void take_from_checkpoint(TrainOptions& options);

// As Trainer::resume; differences of the recipes are told in options of the command line.
ResumedRun resume(Trainer& trainer, const std::string& folder);

// "; the checkpoint does not record data: this run's is used", or "" if it records the whole recipe.
std::string not_compared(const ResumedRun& run);

}  // namespace lockstep::app
