// Everything that a training run needs to continue as if it had never stopped: weights and buffers, the optimizer's
// state, the position, and the recipe that decides the bits.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/epoch_report.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

struct CheckpointContents;  // checkpoint/checkpoint_directory.h

// The settings that decide the bits of a training run, by name: seed, shards, threads per shard, batch size, and so on.
class Recipe {
 public:
  // A Boolean, an integer, a floating-point number, or a string. 1 and 1.0 differ.
  class Value {
   public:
    Value(bool value) : value_(value) {}
    template <std::integral T>
    Value(T value) {
      if (value < T{0})
        value_ = static_cast<std::int64_t>(value);
      else
        value_ = static_cast<std::uint64_t>(value);
    }
    Value(double value) : value_(value) {}
    Value(std::string value) : value_(std::move(value)) {}
    Value(std::string_view value) : value_(std::string(value)) {}
    Value(const char* value) : value_(std::string(value)) {}

    bool operator==(const Value&) const = default;
    // Null for a value of another type. An integer is an std::uint64_t if it is 0 or more, otherwise an std::int64_t.
    template <typename T>
    const T* as() const {
      return std::get_if<T>(&value_);
    }
    // true, 3, 0.1, "sgd". Numbers survive a round trip exactly.
    std::string json() const;

   private:
    friend class Recipe;
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string> value_;
  };
  using Entry = std::pair<std::string, Value>;

  Recipe() = default;
  Recipe(std::initializer_list<Entry> entries);

  // Replaces the entry of that name, or adds one after all others. Throws for NaN and infinities, which JSON lacks.
  void set(std::string_view name, Value value);
  void erase(std::string_view name);
  // Sets every entry of `other`.
  void update(const Recipe& other);

  // Null if there is no entry of that name.
  const Value* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Throws an Error with the name if there is no such entry.
  const Value& at(std::string_view name) const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  // The same entries in the same order.
  bool operator==(const Recipe&) const = default;

  // Converts to one JSON object, {"seed":0,"optimizer":"sgd"}, and back. Throws for text that is not an object of
  // values.
  std::string json() const;
  static Recipe from_json(std::string_view text);

 private:
  std::vector<Entry> entries_;
};

// SHA-256 of the recipe, 64 hexadecimal digits; the order of the names does not matter. The first eight identify a run.
std::string recipe_hash(const Recipe& recipe);

struct TrainingPosition {
  std::int64_t step = 0;   // finished steps
  std::int64_t epoch = 0;  // the epoch in progress, from 0
  std::int64_t batch = 0;  // its finished batches
  // The epoch in progress: the sum of loss * samples, the number of samples, and the training time.
  double loss_sum = 0;
  std::int64_t samples = 0;
  double seconds = 0;
  double data_seconds = 0;  // EpochReport::data_seconds so far; 0 in checkpoints of older versions
  // Present if the loss is scaled.
  std::optional<LossScalerState> loss_scaler = {};
  // Learning rate of the optimizer, if no schedule decides it.
  std::optional<double> learning_rate = {};
  // Sum of value * samples of each entry of StepReport::log in the epoch in progress.
  NamedScalars log_sums = {};
  // All finished epochs, including those of earlier runs that this one resumed. Checkpoints of older versions have
  // none.
  std::vector<EpochReport> epochs = {};
};

struct SaveOptions {
  // The number of newest checkpoints that stay in the folder, at least one.
  int keep = 2;
  // A moving average of the weights, by name. Empty: no average.
  StateDict average = {};
  // Replaces checkpoints of later steps instead of refusing to write.
  bool replace_later = false;
};

// Writes a checkpoint to `folder`. Waits for the values. Deletes older checkpoints only when this one is on disk.
// Throws if weights or optimizer state are not finite (see sound_state_dict), because a run resumed from them would
// fail again.
void save_checkpoint(const std::filesystem::path& folder, const Module& module, const Optimizer& optimizer,
                     const TrainingPosition& position, const Recipe& recipe, const SaveOptions& options = {});

// One of the models of a program that trains several, such as a GAN, with its optimizer. The name consists of letters,
// digits, '_' and '-', and begins the names of its files: "g.weights.safetensors".
struct TrainedModel {
  std::string name;
  Module& module;
  Optimizer& optimizer;
};

// The same for several models: one checkpoint holds all of them at one step.
//
//   save_checkpoint("ck", {{"g", g, adam_g}, {"d", d, adam_d}}, {.step = step}, {{"data", "faces"}});
//
// load_weights("ck/step-00000100/g.weights.safetensors", g) loads one of them. Throws for SaveOptions::average.
void save_checkpoint(const std::filesystem::path& folder, const std::vector<TrainedModel>& models,
                     const TrainingPosition& position, const Recipe& recipe, const SaveOptions& options = {});

// Thrown for a checkpoint with another recipe. The message names all differences.
class RecipeMismatch : public Error {
 public:
  struct Difference {
    std::string name;
    std::optional<Recipe::Value> saved, mine;  // absent: the recipe has no such name
  };
  RecipeMismatch(const std::string& message, std::filesystem::path file, std::vector<Difference> differences)
      : Error(message), file(std::move(file)), differences(std::move(differences)) {}

  std::filesystem::path file;
  std::vector<Difference> differences;
};

// The recipe of the checkpoint that load_checkpoint would load.
Recipe read_recipe(const std::filesystem::path& folder);
Recipe recipe_of(const CheckpointContents& checkpoint);
// Throws RecipeMismatch if the checkpoint has another recipe. Returns ResumedRun::unrecorded.
std::vector<std::string> check_recipe(const CheckpointContents& checkpoint, const Recipe& recipe);

struct ResumedRun {
  TrainingPosition position;
  std::filesystem::path path;
  // The errors of newer checkpoints, which were damaged.
  std::vector<std::string> damaged;
  // Recipe entries that were not compared, because the checkpoint comes from an older version that did not record them.
  std::vector<std::string> unrecorded;
  // The moving average of the weights; empty if the checkpoint has none.
  StateDict average = {};
};

// Loads the newest valid checkpoint in `folder`, or `folder` itself if it is a checkpoint, into the model, which must
// be initialized, and the optimizer, whose learning rates become the saved ones. Throws RecipeMismatch if the recipe
// differs, and Error if there is no valid checkpoint or if it was made with another RuntimeOptions::seed; the model and
// the optimizer stay unchanged. `accept`, if set, is called before anything changes and may refuse what was read with
// an exception.
ResumedRun load_checkpoint(const std::filesystem::path& folder, Module& module, Optimizer& optimizer,
                           const Recipe& recipe, const std::function<void(const ResumedRun&)>& accept = {});
// The same for several models under the names that they were saved with.
ResumedRun load_checkpoint(const std::filesystem::path& folder, const std::vector<TrainedModel>& models,
                           const Recipe& recipe, const std::function<void(const ResumedRun&)>& accept = {});
// The same for a checkpoint in memory.
ResumedRun load_checkpoint(CheckpointContents checkpoint, Module& module, Optimizer& optimizer, const Recipe& recipe,
                           const std::function<void(const ResumedRun&)>& accept = {});

}  // namespace lockstep
