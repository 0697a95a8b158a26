// What a trained model makes of its test examples, for the page of a run: confusion matrix or scatter, and the worst
// examples.
#pragma once

#include <chrono>

#include "learning_task.h"
#include "report_page.h"

namespace lockstep::app {

// Runs the model in evaluation mode on this rank's devices, on at most 10,000 of the examples, and stops between two
// batches when the time is over. Changes no weights and no random numbers. Other ranks take no part.
PageResults examine(Module& net, const DataSource& data, std::int64_t batch_size, const ToolJob& job,
                    std::chrono::milliseconds limit);

}  // namespace lockstep::app
