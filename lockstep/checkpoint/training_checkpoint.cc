#include "lockstep/checkpoint/training_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_guard.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {
namespace {

constexpr std::string_view kWeights = "weights.safetensors";
constexpr std::string_view kOptimizer = "optimizer.safetensors";
constexpr std::string_view kAverage = "average.safetensors";
constexpr std::string_view kState = "state.json";
constexpr std::size_t kMostStateBytes = 1 << 28;  // a million epochs
constexpr std::size_t kMostStateDepth = 5;        // {position: {epochs: [{metrics: {...}}]}}
constexpr std::size_t kMostStateNames = 4096;     // of one object, such as the recipe
// The version of state.json; a file without one has version 1. A file may lack the names that were added later,
// whatever their values were. Otherwise, an absent name means the default.
constexpr int kStateVersion = 3;
constexpr std::pair<std::string_view, int> kAdded[] = {{"data", 2},
                                                       {"schedule", 2},
                                                       {"threads_per_shard", 2},
                                                       {"frozen", 2},
                                                       {"evaluation_mode", 2},
                                                       {"kernels", 2},
                                                       {"cuda_algorithms", 2},
                                                       {"optimizer", 3},
                                                       {"momentum", 3},
                                                       {"weight_decay", 3},
                                                       {"nesterov", 3},
                                                       {"beta1", 3},
                                                       {"beta2", 3},
                                                       {"eps", 3}};

nlohmann::ordered_json to_json(const TrainingPosition& p) {
  nlohmann::ordered_json j = {{"step", p.step},         {"epoch", p.epoch},     {"batch", p.batch},
                              {"loss_sum", p.loss_sum}, {"samples", p.samples}, {"seconds", p.seconds}};
  if (p.loss_scaler) {
    j["loss_scaler"] = {{"scale", p.loss_scaler->scale}, {"good_steps", p.loss_scaler->good_steps}};
  }
  if (p.learning_rate) j["learning_rate"] = *p.learning_rate;
  if (p.epochs.empty()) return j;
  j["epochs"] = nlohmann::ordered_json::array();
  for (const EpochRecord& e : p.epochs) {
    j["epochs"].push_back({{"epoch", e.epoch},
                           {"seconds", e.seconds},
                           {"train_loss", e.train_loss},
                           {"test_correct", e.test_correct},
                           {"test_total", e.test_total}});
    for (const auto& [name, value] : e.metrics) j["epochs"].back()["metrics"][name] = value;
  }
  return j;
}

// A conversion by nlohmann would cut off fractions, and numbers out of range would be undefined.
std::int64_t count_at(const nlohmann::ordered_json& object, const char* name) {
  const auto& count = object.at(name);
  check(count.is_number_unsigned() && count.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
        "{} is {}, expected a count", name, excerpt(count));
  return count.get<std::int64_t>();
}

TrainingPosition position_from(const nlohmann::ordered_json& j) {
  TrainingPosition p{.step = count_at(j, "step"),
                     .epoch = count_at(j, "epoch"),
                     .batch = count_at(j, "batch"),
                     .loss_sum = j.at("loss_sum"),
                     .samples = count_at(j, "samples"),
                     .seconds = j.at("seconds")};
  if (j.contains("loss_scaler")) {
    const auto& scaler = j.at("loss_scaler");
    p.loss_scaler = LossScalerState{scaler.at("scale"), count_at(scaler, "good_steps")};
  }
  if (j.contains("learning_rate")) p.learning_rate = j.at("learning_rate").get<double>();
  for (const auto& e : j.value("epochs", nlohmann::ordered_json::array())) {
    p.epochs.push_back({count_at(e, "epoch"), e.at("seconds"), e.at("train_loss"), count_at(e, "test_correct"),
                        count_at(e, "test_total")});
    const auto metrics = e.value("metrics", nlohmann::ordered_json::object());
    for (const auto& [name, value] : metrics.items()) {
      // Not a number: JSON has none.
      p.epochs.back().metrics.emplace_back(name, value.is_null() ? NAN : value.get<double>());
    }
  }
  check(p.learning_rate.value_or(0) >= 0, "learning_rate is {}, expected at least 0", p.learning_rate.value_or(0));
  return p;
}

using Difference = RecipeMismatch::Difference;

std::vector<Difference> differences(const Recipe& saved, const Recipe& mine) {
  std::vector<Difference> found;
  for (const auto& [name, value] : mine) {
    const Recipe::Value* other = saved.find(name);
    if (other == nullptr) {
      found.push_back({name, std::nullopt, value});
    } else if (*other != value) {
      found.push_back({name, *other, value});
    }
  }
  for (const auto& [name, value] : saved) {
    if (!mine.contains(name)) found.push_back({name, value, std::nullopt});
  }
  return found;
}

// Returns the names that a file of this version may lack and does lack.
std::vector<std::string> compare(const Recipe& saved, int version, const Recipe& mine,
                                 const std::filesystem::path& file) {
  std::vector<Difference> found = differences(saved, mine);
  std::vector<std::string> unrecorded;
  std::erase_if(found, [&](const Difference& d) {
    // The number of threads does not affect the bits of this run.
    if (d.name == "threads_per_shard" && !d.mine) return true;
    const auto* added = std::ranges::find(kAdded, d.name, &std::pair<std::string_view, int>::first);
    if (d.saved || added == std::end(kAdded) || version >= added->second) return false;
    unrecorded.push_back(d.name);
    return true;
  });
  if (found.empty()) return unrecorded;
  auto list = [&](auto side) {
    std::string text;
    for (const Difference& d : found) {
      const auto& value = d.*side;
      text += (text.empty() ? "" : ", ") + (value ? fmt::format("{} {}", d.name, value->json()) : "no " + d.name);
    }
    return text;
  };
  const std::string message = fmt::format("{}: the checkpoint was made with {}; this run has {}", file.string(),
                                          list(&Difference::saved), list(&Difference::mine));
  throw RecipeMismatch(message, file, std::move(found));
}

struct FoundCheckpoint {
  Checkpoint checkpoint;
  std::vector<std::string> damaged;  // newer ones
};

// Returns the newest checkpoint in `folder`, or `folder` itself if it is one.
FoundCheckpoint find_checkpoint(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "manifest.json")) return {open_checkpoint(folder), {}};
  LatestCheckpoint latest = find_latest_checkpoint(folder);
  std::string why = latest.damaged.empty() ? "" : fmt::format(" ({})", latest.damaged.front());
  check(latest.checkpoint.has_value(), "{}: there is no valid checkpoint to resume from{}", folder.string(), why);
  return {*latest.checkpoint, latest.damaged};
}

struct TrainingState {
  TrainingPosition position;
  Recipe recipe;
  int version;
  // The step of random operations: the steps of all optimizers.
  std::uint64_t random_step;
  std::int64_t optimizer_steps;
};

// The source of keys for the model's random operations; null without parameters.
RandomState* random_of(const Module& module) {
  for (const Parameter& p : module.parameters()) {
    if (p.initialized()) return state_of(p.devices()[0], "checkpoint").random.get();
  }
  return nullptr;
}

TrainingState read_state(const Checkpoint& checkpoint) {
  const std::filesystem::path file = checkpoint.file(kState);
  try {
    const auto json = nlohmann::ordered_json::parse(read_file(file, kMostStateBytes),
                                                    JsonGuard("it", kMostStateDepth, kMostStateNames));
    const TrainingPosition position = position_from(json.at("position"));
    check(position.step == checkpoint.step, "step is {}, expected {} as in the manifest", position.step,
          checkpoint.step);
    // Older checkpoints lack this field; in them a single optimizer had stepped.
    const auto count_or = [&](const char* name, std::int64_t other) {
      return json.contains(name) ? count_at(json, name) : other;
    };
    const std::int64_t random_step = count_or("random_step", position.step), version = count_or("version", 1);
    // The optimizer may have taken steps before this run.
    const std::int64_t optimizer_steps = count_or("optimizer_steps", position.step);
    check(version >= 1 && version <= kStateVersion, "version is {}, expected at most {}", version, kStateVersion);
    return {position, Recipe::from_json(json.at("recipe").dump()), static_cast<int>(version),
            static_cast<std::uint64_t>(random_step), optimizer_steps};
  } catch (const std::exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

}  // namespace

void save_checkpoint(const std::filesystem::path& folder, const Module& module, const Optimizer& optimizer,
                     const TrainingPosition& position, const Recipe& recipe, const SaveOptions& options) {
  const std::string what = fmt::format("checkpoint: step {}", position.step);
  const StateDict weights = sound_state_dict(module, what);
  const StateDict state = optimizer.state_dict();
  check_finite(state, what + ": optimizer");
  check_finite(options.average, what + ": average of the weights");
  nlohmann::ordered_json json = {{"version", kStateVersion},
                                 {"position", to_json(position)},
                                 {"optimizer_steps", optimizer.steps()},
                                 {"recipe", nlohmann::ordered_json::parse(recipe.json())},
                                 {"recipe_hash", recipe_hash(recipe)}};
  if (const RandomState* random = random_of(module)) json["random_step"] = random->step();
  CheckpointWriter writer(folder, position.step, {.keep = options.keep});
  writer.add_file(kWeights, [&](const ByteSink& sink) {
    write_safetensors(sink, as_bytes(weights), {{"format", "pt"}});
  });
  writer.add_file(kOptimizer, [&](const ByteSink& sink) { write_safetensors(sink, as_bytes(state)); });
  if (!options.average.empty()) {
    writer.add_file(kAverage, [&](const ByteSink& sink) {
      write_safetensors(sink, as_bytes(options.average), {{"format", "pt"}});
    });
  }
  writer.add_file(kState, json.dump(2) + "\n");
  writer.publish();
}

Recipe read_recipe(const std::filesystem::path& folder) {
  return read_state(find_checkpoint(folder).checkpoint).recipe;
}

ResumedRun load_checkpoint(const std::filesystem::path& folder, Module& module, Optimizer& optimizer,
                           const Recipe& recipe, const std::function<void(const ResumedRun&)>& accept) {
  auto [checkpoint, damaged] = find_checkpoint(folder);
  TrainingState saved = read_state(checkpoint);
  std::vector<std::string> unrecorded = compare(saved.recipe, saved.version, recipe, checkpoint.file(kState));
  StateDict state = as_tensors(read_safetensors(checkpoint.file(kOptimizer)));
  ResumedRun run{saved.position, checkpoint.path, damaged, std::move(unrecorded), {}};
  if (std::ranges::find(checkpoint.files, kAverage) != checkpoint.files.end()) {
    run.average = as_tensors(read_safetensors(checkpoint.file(kAverage)));
  }
  // All checks before the first change; load_weights() checks first, too.
  try {
    optimizer.check_state_dict(state, saved.optimizer_steps);
  } catch (const Error& error) {
    fail("{}: {}", checkpoint.file(kOptimizer).string(), error.what());
  }
  if (accept) accept(run);
  load_weights(checkpoint.file(kWeights), module);
  optimizer.load_state_dict(state, saved.optimizer_steps);
  if (RandomState* random = random_of(module)) random->set_step(saved.random_step);
  return run;
}

}  // namespace lockstep
