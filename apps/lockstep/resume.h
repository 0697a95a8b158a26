// A run that goes on from a checkpoint: what it takes from there, and how it says what does not fit.
#pragma once

#include "train_options.h"

namespace lockstep::app {

// The number of shards and of threads that compute one, where the user left them open: they would depend on the devices, and the
// bits on them. Throws where there is no checkpoint in options.resume.
void take_shards_of_checkpoint(TrainOptions& options);

// As Trainer::resume; differences of the recipes are told in options of the command line.
ResumedRun resume(Trainer& trainer, const std::string& folder);

}  // namespace lockstep::app
