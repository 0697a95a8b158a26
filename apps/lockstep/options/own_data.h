// Data of the user's own: what --data names, the options that say how to read it, and the defaults that fit it.
#pragma once

#include <string>

#include "apps/lockstep/options/train_options.h"

namespace lockstep::app {

// Throws UsageError if --mixup or --cutmix does not fit the data.
void check_mixing(const TrainOptions& options);

// Returns how open_data() must read --data.
DataOptions data_options(const CommonOptions& options);
// Reads --data into options.source if it is the user's own data: pictures, a table, or arrays. Otherwise returns why it
// is not; load_data() reads Fashion-MNIST and texts. Chooses the model if the user did not. Throws UsageError for
// options that do not fit the data.
std::string open_own_data(TrainOptions& options, const CLI::App& app);

// `dtype`: what a language model computes in. Other models compute in the dtype of their input.
TaskModel task_model(const CommonOptions& options, DType dtype = DType::f32);

}  // namespace lockstep::app
