// Internal: what a trained model makes of its test examples, for the page of a run: a confusion matrix or a scatter,
// and the worst examples.
#pragma once

#include <chrono>

#include "lockstep/report/page.h"
#include "lockstep/task/data_source.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Runs the model in evaluation mode on this rank's devices, on the first 10,000 validation examples at most, and stops
// between two batches after `limit`. Changes no weights and no random numbers. Other ranks take no part.
PageResults examine(Module& net, const DataSource& data, const TrainerOptions& training,
                    std::chrono::milliseconds limit);

}  // namespace lockstep
