#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// state.json of a checkpoint.
Reader checkpoint_state() {
  constexpr std::int64_t kStep = 5;
  Linear net(2, 1);
  Sgd sgd(net.parameters(), {.lr = 0.1});
  const TrainingPosition position{
      .step = kStep,
      .epoch = 1,
      .batch = 1,
      .loss_sum = 1.0 / 3,
      .samples = 8,
      .seconds = 0.1,
      .loss_scaler = LossScalerState{.scale = 4096, .good_steps = 17},
      .log_sums = {{"norm", 0.5}},
      .epochs = {{1, 0.7, 1.0 / 7, {5, 6}, {{.name = "perplexity", .value = 1.0 / 3}}}, {2, 1e-9, 0}}};
  save_checkpoint(file_in_scratch("state"), net, sgd, position, {{"seed", 0}, {"lr", 0.1}, {"model", "linear"}});
  return {.read =
              [](const std::string& bytes) {
                const CheckpointContents checkpoint{.path = "fuzz", .step = kStep, .files = {{"state.json", bytes}}};
                const Recipe recipe = recipe_of(checkpoint);
                recipe_hash(recipe);
                check_recipe(checkpoint, recipe);
              },
          .seeds = {read_from_scratch("state/step-00000005/state.json")},
          .words = json_words({"position", "recipe", "version", "step", "epochs", "metrics", "log_sums", "loss_scaler",
                               "random_seed", "optimizer_steps"}),
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
