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
  return {{"step", p.step},         {"epoch", p.epoch},     {"batch", p.batch},
          {"loss_sum", p.loss_sum}, {"samples", p.samples}, {"seconds", p.seconds}};
}

TrainingPosition position_from(const nlohmann::ordered_json& j) {
  TrainingPosition p{j.at("step"), j.at("epoch"), j.at("batch"), j.at("loss_sum"), j.at("samples"), j.at("seconds")};
  check(p.step >= 0 && p.epoch >= 0 && p.batch >= 0 && p.samples >= 0, "a negative position");
  return p;
}

void compare(const Recipe& saved, const Recipe& mine) {
  for (const auto& [name, value] : mine.items()) {
    check(saved.contains(name), "the checkpoint's recipe has no {}, this run has {}", name, value.dump());
    check(saved.at(name) == value, "the checkpoint was made with {} {}, this run has {}", name, saved.at(name).dump(),
          value.dump());
  }
  for (const auto& [name, value] : saved.items()) {
    check(mine.contains(name), "the checkpoint was made with {} {}, this run has none", name, value.dump());
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

ResumedRun load_checkpoint(const std::filesystem::path& folder, Module& module, Optimizer& optimizer,
                           const Recipe& recipe) {
  ResumedRun run;
  std::optional<Checkpoint> found;
  if (std::filesystem::exists(folder / "manifest.json")) {
    found = open_checkpoint(folder);
  } else {
    LatestCheckpoint latest = find_latest_checkpoint(folder);
    run.damaged = latest.damaged;
    found = latest.checkpoint;
    std::string why = latest.damaged.empty() ? "" : fmt::format(" ({})", latest.damaged.front());
    check(found.has_value(), "{}: there is no valid checkpoint to resume from{}", folder.string(), why);
  }
  run.path = found->path;
  std::filesystem::path state_file = found->file(kState);
  try {
    auto json = nlohmann::ordered_json::parse(read_file(state_file, kMostStateBytes));
    run.position = position_from(json.at("position"));
    compare(json.at("recipe"), recipe);
  } catch (const nlohmann::json::exception& error) {
    fail("{}: {}", state_file.string(), error.what());
  } catch (const Error& error) {
    fail("{}: {}", state_file.string(), error.what());
  }
  StateDict state = as_tensors(read_safetensors(found->file(kOptimizer)));
  load_weights(found->file(kWeights), module);
  optimizer.load_state_dict(state, run.position.step);
  return run;
}

}  // namespace lockstep
