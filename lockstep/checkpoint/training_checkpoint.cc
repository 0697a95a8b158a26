#include "lockstep/checkpoint/training_checkpoint.h"

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/weights.h"

namespace lockstep {
namespace {

constexpr std::string_view kWeights = "weights.safetensors";
constexpr std::string_view kOptimizer = "optimizer.safetensors";
constexpr std::string_view kState = "state.json";
constexpr std::size_t kMostStateBytes = 1 << 20;

nlohmann::ordered_json to_json(const TrainingPosition& p) {
  nlohmann::ordered_json j = {{"step", p.step},         {"epoch", p.epoch},     {"batch", p.batch},
                              {"loss_sum", p.loss_sum}, {"samples", p.samples}, {"seconds", p.seconds}};
  if (p.loss_scaler) {
    j["loss_scaler"] = {{"scale", p.loss_scaler->scale}, {"good_steps", p.loss_scaler->good_steps}};
  }
  return j;
}

TrainingPosition position_from(const nlohmann::ordered_json& j) {
  TrainingPosition p{j.at("step"), j.at("epoch"), j.at("batch"), j.at("loss_sum"), j.at("samples"), j.at("seconds")};
  if (j.contains("loss_scaler")) {
    const auto& scaler = j.at("loss_scaler");
    p.loss_scaler = LossScalerState{scaler.at("scale"), scaler.at("good_steps")};
  }
  check(p.step >= 0 && p.epoch >= 0 && p.batch >= 0 && p.samples >= 0, "a negative position");
  return p;
}

using Difference = RecipeMismatch::Difference;

std::vector<Difference> differences(const Recipe& saved, const Recipe& mine) {
  std::vector<Difference> found;
  for (const auto& [name, value] : mine.items()) {
    if (!saved.contains(name)) {
      found.push_back({name, std::nullopt, value});
    } else if (saved.at(name) != value) {
      found.push_back({name, saved.at(name), value});
    }
  }
  for (const auto& [name, value] : saved.items()) {
    if (!mine.contains(name)) found.push_back({name, value, std::nullopt});
  }
  return found;
}

void compare(const Recipe& saved, const Recipe& mine, const std::filesystem::path& file) {
  std::vector<Difference> found = differences(saved, mine);
  if (found.empty()) return;
  auto list = [&](auto side) {
    std::string text;
    for (const Difference& d : found) {
      const auto& value = d.*side;
      text += (text.empty() ? "" : ", ") + (value ? fmt::format("{} {}", d.name, value->dump()) : "no " + d.name);
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

// The newest in `folder`, or the one that `folder` is.
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
};

TrainingState read_state(const std::filesystem::path& file) {
  try {
    auto json = nlohmann::ordered_json::parse(read_file(file, kMostStateBytes));
    check(json.at("recipe").is_object(), "the recipe is no object");
    return {position_from(json.at("position")), json.at("recipe")};
  } catch (const std::exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

}  // namespace

void save_checkpoint(const std::filesystem::path& folder, const Module& module, const Optimizer& optimizer,
                     const TrainingPosition& position, const Recipe& recipe) {
  StateDict weights = state_dict(module);
  StateDict state = optimizer.state_dict();
  nlohmann::ordered_json json = {{"position", to_json(position)}, {"recipe", recipe}};
  CheckpointWriter writer(folder, position.step);
  writer.add_file(kWeights, [&](const ByteSink& sink) {
    write_safetensors(sink, as_bytes(weights), {{"format", "pt"}});
  });
  writer.add_file(kOptimizer, [&](const ByteSink& sink) { write_safetensors(sink, as_bytes(state)); });
  writer.add_file(kState, json.dump(2) + "\n");
  writer.publish();
}

Recipe read_recipe(const std::filesystem::path& folder) {
  return read_state(find_checkpoint(folder).checkpoint.file(kState)).recipe;
}

ResumedRun load_checkpoint(const std::filesystem::path& folder, Module& module, Optimizer& optimizer,
                           const Recipe& recipe) {
  auto [checkpoint, damaged] = find_checkpoint(folder);
  std::filesystem::path state_file = checkpoint.file(kState);
  TrainingState saved = read_state(state_file);
  compare(saved.recipe, recipe, state_file);
  StateDict state = as_tensors(read_safetensors(checkpoint.file(kOptimizer)));
  load_weights(checkpoint.file(kWeights), module);
  optimizer.load_state_dict(state, saved.position.step);
  return {saved.position, checkpoint.path, damaged};
}

}  // namespace lockstep
