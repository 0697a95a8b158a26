// Makes what `train` trains from its options; `audit` makes the same again.
#pragma once

#include <memory>

#include "apps/lockstep/options/train_options.h"

namespace lockstep::app {

struct TrainingSetup {
  std::unique_ptr<Module> net;  // with its initial weights
  std::unique_ptr<Optimizer> optimizer;
  TrainerOptions options;  // the recipe has all that Trainer cannot know
};

// Returns a batch of one example.
Tensor example_input(const Dataset& data, std::uint64_t seed);

// Sets options.source, and options.start_weights if there is --init-from.
TrainingSetup set_up_training(TrainOptions& options, const ToolJob& job);

}  // namespace lockstep::app
