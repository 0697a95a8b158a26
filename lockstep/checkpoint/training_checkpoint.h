// Everything that a training run needs to go on as if it had never stopped: weights and buffers, the optimizer's state,
// the position, and the recipe that decides the bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/recipe.h"
#include "lockstep/nn/module.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

// The report of an epoch that is over.
struct EpochRecord {
  std::int64_t epoch = 0;  // from 1
  double seconds = 0;      // of training, without evaluation
  double train_loss = 0;
  std::int64_t test_correct = 0, test_total = 0;
};

struct TrainingPosition {
  std::int64_t step = 0;   // steps done
  std::int64_t epoch = 0;  // the epoch in progress, from 0
  std::int64_t batch = 0;  // its batches done
  // Of the epoch in progress: the sum of loss * samples, the samples, and the seconds of training.
  double loss_sum = 0;
  std::int64_t samples = 0;
  double seconds = 0;
  // Where the loss is scaled.
  std::optional<LossScalerState> loss_scaler = {};
  // All epochs done, of the runs before this one, too. Checkpoints of older versions have none.
  std::vector<EpochRecord> epochs = {};
};

// Waits for the values. The older checkpoints stay until this one is on the disk. Throws if the optimizer's state is not
// finite, and for weights that sound_state_dict refuses: a run that went on from them would fail again.
void save_checkpoint(const std::filesystem::path& folder, const Module& module, const Optimizer& optimizer,
                     const TrainingPosition& position, const Recipe& recipe);

// A checkpoint that another recipe made. The message names all differences.
class RecipeMismatch : public Error {
 public:
  struct Difference {
    std::string name;
    std::optional<Recipe::Value> saved, mine;  // none: the recipe has no such name
  };
  RecipeMismatch(const std::string& message, std::filesystem::path file, std::vector<Difference> differences)
      : Error(message), file(std::move(file)), differences(std::move(differences)) {}

  std::filesystem::path file;
  std::vector<Difference> differences;
};

// The recipe of the checkpoint that load_checkpoint would load.
Recipe read_recipe(const std::filesystem::path& folder);

struct ResumedRun {
  TrainingPosition position;
  std::filesystem::path path;
  // Newer checkpoints that were damaged, and how.
  std::vector<std::string> damaged;
  // Names of this run's recipe that the checkpoint does not record, since an older version of Lockstep wrote it. They were
  // not compared.
  std::vector<std::string> unrecorded;
};

// Loads the newest valid checkpoint in `folder` (or the one that `folder` is) into the model, which has to be
// initialized, and the optimizer. Throws RecipeMismatch for a recipe that differs, Error for a folder without a valid
// checkpoint. Nothing is changed then.
ResumedRun load_checkpoint(const std::filesystem::path& folder, Module& module, Optimizer& optimizer,
                           const Recipe& recipe);

}  // namespace lockstep
