#include "lockstep/receipt/state_digest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/receipt/digest.h"

namespace lockstep {
namespace {

Tensor as_tensor(const LossScalerState& state) {
  return Tensor::from(std::vector<double>{state.scale, static_cast<double>(state.good_steps)}, {2});
}

StateDict tensors_in(const CheckpointContents& checkpoint, const std::string& name) {
  if (!checkpoint.files.contains(name)) return {};
  return as_tensors(parse_safetensors(checkpoint.file(name), (checkpoint.path / name).string()));
}

std::optional<LossScalerState> loss_scaler_in(const CheckpointContents& checkpoint) {
  const std::string file = (checkpoint.path / "state.json").string();
  try {
    const auto json = parse_json<nlohmann::json>(checkpoint.file("state.json"), {.what = file, .depth = 16});
    const auto& position = json.at("position");
    if (!position.contains("loss_scaler")) return std::nullopt;
    const auto& scaler = position.at("loss_scaler");
    return LossScalerState{scaler.at("scale"), scaler.at("good_steps")};
  } catch (const nlohmann::json::exception& error) {
    fail("{}: {}", file, excerpt(nlohmann::json(error.what())));
  }
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> named_parts(const TrainingStateParts& parts) {
  std::vector<std::pair<std::string, Tensor>> all(parts.weights.begin(), parts.weights.end());
  for (const auto& [name, tensor] : parts.optimizer) all.emplace_back("optimizer/" + name, tensor);
  for (const auto& [name, tensor] : parts.average) all.emplace_back("average/" + name, tensor);
  if (parts.loss_scaler) all.emplace_back("loss_scaler", as_tensor(*parts.loss_scaler));
  return all;
}

StateDigest state_digest(const TrainingStateParts& parts) {
  std::vector<std::pair<std::string, Tensor>> all = named_parts(parts);
  std::ranges::sort(all, {}, &std::pair<std::string, Tensor>::first);
  StateDigest digest;
  digest.leaves.resize(all.size());
  in_parallel(all.size(), [&](std::size_t i) {
    Sha256 hash = leaf_hash();
    add_text(hash, all[i].first);
    add_tensor(hash, all[i].second);
    digest.leaves[i] = digest_of(hash);
  });
  for (auto& [name, tensor] : all) digest.names.push_back(std::move(name));
  digest.root = merkle_root(digest.leaves);
  return digest;
}

StateDigest state_digest(const CheckpointContents& checkpoint) {
  return state_digest({.weights = tensors_in(checkpoint, "weights.safetensors"),
                       .optimizer = tensors_in(checkpoint, "optimizer.safetensors"),
                       .average = tensors_in(checkpoint, "average.safetensors"),
                       .loss_scaler = loss_scaler_in(checkpoint)});
}

std::map<std::string, std::string> StateDigest::by_name() const {
  std::map<std::string, std::string> all;
  for (std::size_t i = 0; i < names.size(); ++i) all[names[i]] = hex(leaves[i]);
  return all;
}

bool names_weight(std::string_view name) { return name.find('/') == name.npos && name != "loss_scaler"; }

std::string first_difference(const StateDigest& state, const std::vector<Digest>& leaves) {
  if (leaves.size() != state.leaves.size()) return "";
  const auto [mine, other] = std::ranges::mismatch(state.leaves, leaves);
  if (mine == state.leaves.end()) return "";
  // The optimizer's state follows from the weights, so a weight that differs is named first.
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (state.leaves[i] != leaves[i] && names_weight(state.names[i])) return state.names[i];
  }
  return state.names[static_cast<std::size_t>(mine - state.leaves.begin())];
}

}  // namespace lockstep
