// Data of the user's own: what --data names, the options that say how to read it, and the defaults that fit it.
#pragma once

#include <string>

#include "apps/lockstep/options/train_options.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/task/data_source.h"
#include "lockstep/task/run.h"

namespace lockstep::app {

// The options that only data of the user's own have.
const std::vector<std::string>& own_data_options();

// Those of them that other pictures, such as Fashion-MNIST, have, too.
const std::vector<std::string>& picture_options();
AugmentOptions augment_options(const CommonOptions& options);
// Mean and standard deviation that --normalize imagenet, or --mean and --std, give; empty otherwise.
ChannelStatistics given_normalization(const CommonOptions& options);
// Throws UsageError if --mixup or --cutmix does not fit the data.
void check_mixing(const TrainOptions& options);

// How open_data() reads --data.
DataOptions data_options(const CommonOptions& options);
// Reads --data into options.source if it is the user's own data; load_data() reads Fashion-MNIST and texts. Chooses the
// model if the user did not. Throws UsageError for options that do not fit the data.
void open_own_data(TrainOptions& options, const CLI::App& app);

// dtype: what a language model computes in. The others take it from their input.
TaskModel task_model(const CommonOptions& options, DType dtype = DType::f32);

}  // namespace lockstep::app
