// Resuming a run from a checkpoint: the settings that come from the checkpoint, and the errors if something does not
// fit.
#pragma once

#include "train_options.h"

namespace lockstep::app {

// Fills in omitted settings that the checkpoint records: shards, threads per shard, and the hash of the initial
// weights. Also takes over settings that change nothing in this run: older versions put them into the recipe. Throws if
// options.resume has no checkpoint.
void take_from_checkpoint(TrainOptions& options);

// Does the same as Trainer::resume, and reports differences between recipes as command-line options.
ResumedRun resume(Trainer& trainer, const std::string& folder);

// "; the checkpoint does not record data: this run's setting is used", or "" if it records the whole recipe.
std::string not_compared(const ResumedRun& run);

}  // namespace lockstep::app
