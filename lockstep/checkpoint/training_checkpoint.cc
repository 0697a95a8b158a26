#include "lockstep/checkpoint/training_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/parameter_change.h"
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
// Version of state.json; a file without one has version 1. Its recipe may lack the names that later versions added
// (kAdded), whatever their values were. The absence of another name means that it had the default.
constexpr int kStateVersion = 4;
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
                                                       {"eps", 3},
                                                       {"random_seed", 4}};

nlohmann::ordered_json to_json(const TrainingPosition& p) {
  std::vector<std::pair<const char*, double>> numbers{
      {"loss_sum", p.loss_sum},
      {"seconds", p.seconds},
      {"data_seconds", p.data_seconds},
      {"learning_rate", p.learning_rate.value_or(0)},
      {"loss_scaler.scale", p.loss_scaler.value_or(LossScalerState{}).scale}};
  for (const EpochReport& e : p.epochs) numbers.emplace_back("seconds of an epoch", e.seconds);
  for (const auto& [name, value] : numbers) {
    check(std::isfinite(value), "checkpoint: {} is {}, expected a finite number: no checkpoint could hold it", name,
          value);
  }
  nlohmann::ordered_json j = {{"step", p.step},
                              {"epoch", p.epoch},
                              {"batch", p.batch},
                              {"loss_sum", p.loss_sum},
                              {"samples", p.samples},
                              {"seconds", p.seconds},
                              {"data_seconds", p.data_seconds}};
  if (p.loss_scaler) {
    j["loss_scaler"] = {{"scale", p.loss_scaler->scale}, {"good_steps", p.loss_scaler->good_steps}};
  }
  if (p.learning_rate) j["learning_rate"] = *p.learning_rate;
  for (const auto& [name, sum] : p.log_sums) j["log_sums"][name] = sum;
  if (p.epochs.empty()) return j;
  j["epochs"] = nlohmann::ordered_json::array();
  for (const EpochReport& e : p.epochs) {
    j["epochs"].push_back({{"epoch", e.epoch},
                           {"seconds", e.seconds},
                           {"data_seconds", e.data_seconds},
                           {"train_loss", e.train_loss},
                           {"test_correct", e.test.correct},
                           {"test_total", e.test.total}});
    for (const MetricResult& m : e.metrics) {
      if (m.table.empty()) j["epochs"].back()["metrics"][m.name] = m.value;
    }
    for (const auto& [name, mean] : e.log) j["epochs"].back()["log"][name] = mean;
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

// NaN is saved as null, because JSON has no NaN.
double number_of(const nlohmann::ordered_json& value) { return value.is_null() ? NAN : value.get<double>(); }

// Returns the numbers by name in the object `name`; empty without that object.
NamedScalars scalars_at(const nlohmann::ordered_json& object, const char* name) {
  NamedScalars all;
  const auto scalars = object.value(name, nlohmann::ordered_json::object());
  for (const auto& [key, value] : scalars.items()) all.emplace_back(key, number_of(value));
  return all;
}

TrainingPosition position_from(const nlohmann::ordered_json& j) {
  TrainingPosition p{.step = count_at(j, "step"),
                     .epoch = count_at(j, "epoch"),
                     .batch = count_at(j, "batch"),
                     .loss_sum = j.at("loss_sum"),
                     .samples = count_at(j, "samples"),
                     .seconds = j.at("seconds"),
                     .data_seconds = j.value("data_seconds", 0.0)};
  if (j.contains("loss_scaler")) {
    const auto& scaler = j.at("loss_scaler");
    p.loss_scaler = LossScalerState{scaler.at("scale"), count_at(scaler, "good_steps")};
  }
  p.log_sums = scalars_at(j, "log_sums");
  if (j.contains("learning_rate")) p.learning_rate = j.at("learning_rate").get<double>();
  for (const auto& e : j.value("epochs", nlohmann::ordered_json::array())) {
    p.epochs.push_back({count_at(e, "epoch"),
                        e.at("seconds"),
                        number_of(e.at("train_loss")),
                        {count_at(e, "test_correct"), count_at(e, "test_total")}});
    const auto metrics = e.value("metrics", nlohmann::ordered_json::object());
    for (const auto& [name, value] : metrics.items()) {
      p.epochs.back().metrics.push_back({.name = name, .value = number_of(value)});
    }
    p.epochs.back().log = scalars_at(e, "log");
    p.epochs.back().data_seconds = number_of(e.value("data_seconds", nlohmann::ordered_json()));
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

// Throws RecipeMismatch for a difference. Returns the names that a file of this version may lack and does lack.
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

struct TrainingState {
  TrainingPosition position;
  Recipe recipe;
  int version;
  // Step of random operations: the sum of the steps of all optimizers.
  std::uint64_t random_step;
  // Seed of random operations; older versions did not save it.
  std::optional<std::uint64_t> random_seed;
  std::int64_t optimizer_steps;
};

// The source of keys for the model's random operations; null without parameters.
RandomState* random_of(const Module& module) {
  for (const Parameter& p : module.parameters()) {
    if (p.initialized()) return state_of(p.devices()[0], "checkpoint").random().get();
  }
  return nullptr;
}

TrainingState read_state(const CheckpointContents& checkpoint) {
  const std::string& text = checkpoint.file(std::string(kState));
  try {
    check(text.size() <= kMostStateBytes, "it has {} bytes, at most {} are allowed", text.size(), kMostStateBytes);
    const auto json =
        parse_json<nlohmann::ordered_json>(text, {.what = "it", .depth = kMostStateDepth, .names = kMostStateNames});
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
    std::optional<std::uint64_t> random_seed;
    if (json.contains("random_seed")) {
      const auto& seed = json.at("random_seed");
      check(seed.is_number_unsigned(), "random_seed is {}, expected a count", excerpt(seed));
      random_seed = seed.get<std::uint64_t>();
    }
    return {position,
            Recipe::from_json(json.at("recipe").dump()),
            static_cast<int>(version),
            static_cast<std::uint64_t>(random_step),
            random_seed,
            optimizer_steps};
  } catch (const std::exception& error) {
    fail("{}: {}", (checkpoint.path / kState).string(), error.what());
  }
}

// Moves the file out of the checkpoint, so that its bytes are freed when the tensors are made.
StateDict take_tensors(CheckpointContents& checkpoint, std::string_view name) {
  checkpoint.file(std::string(name));
  return as_tensors(parse_safetensors(std::move(checkpoint.files.extract(std::string(name)).mapped()),
                                      (checkpoint.path / name).string()));
}

// Throws unless types agree, because a resumed run computes in the types of the earlier run. load_weights() casts.
void check_types(const StateDict& weights, const Module& module, const std::filesystem::path& file) {
  std::map<std::string_view, DType> saved;
  for (const auto& [name, tensor] : weights) saved.emplace(name, tensor.dtype());
  auto mine = module.named_parameters(), buffers = module.named_buffers();
  mine.insert(mine.end(), buffers.begin(), buffers.end());
  for (const auto& [name, p] : mine) {
    const auto found = saved.find(name);
    check(found == saved.end() || found->second == p.dtype(), "{}: {} is {}, expected {}", file.string(), name,
          lockstep::name(found->second), lockstep::name(p.dtype()));
  }
}

}  // namespace

namespace {

// A model, and the prefix of the names of its files, which is empty for a single model.
struct SavedPart {
  std::string prefix;
  const Module& module;
  const Optimizer& optimizer;

  std::string file(std::string_view name) const { return prefix + std::string(name); }
};

std::vector<SavedPart> parts_of(const std::vector<TrainedModel>& models) {
  check(!models.empty(), "checkpoint: no models");
  std::vector<SavedPart> parts;
  for (const auto& [name, module, optimizer] : models) {
    const bool plain = std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    check(plain && !name.empty(), "checkpoint: a model named \"{}\", expected letters, digits, '_' and '-'", name);
    check(std::ranges::find(parts, name + ".", &SavedPart::prefix) == parts.end(),
          "checkpoint: two models are named \"{}\"", name);
    parts.push_back({name + ".", module, optimizer});
  }
  return parts;
}

void save_parts(const std::filesystem::path& folder, std::span<const SavedPart> parts, const TrainingPosition& position,
                const Recipe& recipe, const SaveOptions& options) {
  const std::string what = fmt::format("checkpoint: step {}", position.step);
  std::vector<std::pair<StateDict, StateDict>> states;
  for (const SavedPart& part : parts) {
    states.emplace_back(sound_state_dict(part.module, what), part.optimizer.state_dict());
    check_finite(states.back().second, what + ": optimizer");
  }
  check_finite(options.average, what + ": average of the weights");
  // Has the step count of the first model; the state of each optimizer holds its own count, too.
  nlohmann::ordered_json json = {{"version", kStateVersion},
                                 {"position", to_json(position)},
                                 {"optimizer_steps", parts[0].optimizer.steps()},
                                 {"recipe", parse_json<nlohmann::ordered_json>(recipe.json())},
                                 {"recipe_hash", recipe_hash(recipe)}};
  if (const RandomState* random = random_of(parts[0].module)) {
    json["random_step"] = random->step();
    json["random_seed"] = random->seed();
  }
  CheckpointWriter writer(folder, position.step, {.keep = options.keep, .replace_later = options.replace_later});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    writer.add_file(parts[i].file(kWeights), [&](const ByteSink& sink) {
      write_safetensors(sink, as_bytes(states[i].first), {{"format", "pt"}});
    });
    writer.add_file(parts[i].file(kOptimizer),
                    [&](const ByteSink& sink) { write_safetensors(sink, as_bytes(states[i].second)); });
  }
  if (!options.average.empty()) {
    writer.add_file(kAverage, [&](const ByteSink& sink) {
      write_safetensors(sink, as_bytes(options.average), {{"format", "pt"}});
    });
  }
  writer.add_file(kState, json.dump(2) + "\n");
  writer.publish();
}

}  // namespace

void save_checkpoint(const std::filesystem::path& folder, const Module& module, const Optimizer& optimizer,
                     const TrainingPosition& position, const Recipe& recipe, const SaveOptions& options) {
  save_parts(folder, std::array{SavedPart{"", module, optimizer}}, position, recipe, options);
}

void save_checkpoint(const std::filesystem::path& folder, const std::vector<TrainedModel>& models,
                     const TrainingPosition& position, const Recipe& recipe, const SaveOptions& options) {
  check(options.average.empty(), "checkpoint: an average of the weights of several models, expected none");
  save_parts(folder, parts_of(models), position, recipe, options);
}

Recipe recipe_of(const CheckpointContents& checkpoint) { return read_state(checkpoint).recipe; }

Recipe read_recipe(const std::filesystem::path& folder) { return recipe_of(read_checkpoint(folder)); }

std::vector<std::string> check_recipe(const CheckpointContents& checkpoint, const Recipe& recipe) {
  const TrainingState saved = read_state(checkpoint);
  return compare(saved.recipe, saved.version, recipe, checkpoint.path / kState);
}

namespace {

ResumedRun load_parts(CheckpointContents checkpoint, std::span<const TrainedModel> models,
                      std::span<const SavedPart> parts, const Recipe& recipe,
                      const std::function<void(const ResumedRun&)>& accept) {
  const std::filesystem::path& path = checkpoint.path;
  TrainingState saved = read_state(checkpoint);
  std::vector<std::string> unrecorded = compare(saved.recipe, saved.version, recipe, path / kState);
  RandomState* random = random_of(parts[0].module);
  if (random != nullptr && saved.random_seed) {
    check(*saved.random_seed == random->seed(),
          "{}: the random operations of the checkpoint have seed {}; this run's RuntimeOptions::seed is {}",
          (path / kState).string(), *saved.random_seed, random->seed());
  }
  ResumedRun run{saved.position, path, checkpoint.damaged, std::move(unrecorded), {}};
  // The states of several optimizers hold their step counts; older versions saved the count of a single one apart.
  const auto steps = parts.size() == 1 ? std::optional(saved.optimizer_steps) : std::nullopt;
  std::vector<std::pair<StateDict, StateDict>> states;
  for (const SavedPart& part : parts) {
    StateDict state = take_tensors(checkpoint, part.file(kOptimizer));
    states.emplace_back(take_tensors(checkpoint, part.file(kWeights)), std::move(state));
  }
  if (checkpoint.files.contains(std::string(kAverage))) run.average = take_tensors(checkpoint, kAverage);
  const auto naming = [&](const std::string& file, const auto& f) {
    try {
      f();
    } catch (const Error& error) {
      fail("{}: {}", (path / file).string(), error.what());
    }
  };
  // All checks before the first change.
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const StateDict &weights = states[i].first, &state = states[i].second;
    naming(parts[i].file(kOptimizer), [&] { parts[i].optimizer.check_state_dict(state, steps); });
    check_types(weights, parts[i].module, path / parts[i].file(kWeights));
  }
  if (accept) accept(run);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    naming(parts[i].file(kWeights), [&] { check_state_dict(parts[i].module, states[i].first); });
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const SameRunGuard same_run(models[i].module);
    load_state_dict(models[i].module, states[i].first);
    models[i].optimizer.load_state_dict(states[i].second, steps);
  }
  if (random != nullptr) random->set_step(saved.random_step);
  return run;
}

}  // namespace

ResumedRun load_checkpoint(const std::filesystem::path& folder, Module& module, Optimizer& optimizer,
                           const Recipe& recipe, const std::function<void(const ResumedRun&)>& accept) {
  return load_checkpoint(read_checkpoint(folder), module, optimizer, recipe, accept);
}

ResumedRun load_checkpoint(const std::filesystem::path& folder, const std::vector<TrainedModel>& models,
                           const Recipe& recipe, const std::function<void(const ResumedRun&)>& accept) {
  return load_parts(read_checkpoint(folder), models, parts_of(models), recipe, accept);
}

ResumedRun load_checkpoint(CheckpointContents checkpoint, Module& module, Optimizer& optimizer, const Recipe& recipe,
                           const std::function<void(const ResumedRun&)>& accept) {
  return load_parts(std::move(checkpoint), std::array{TrainedModel{"", module, optimizer}},
                    std::array{SavedPart{"", module, optimizer}}, recipe, accept);
}

}  // namespace lockstep
