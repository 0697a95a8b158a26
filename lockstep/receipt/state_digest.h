// Internal: the state of a training run as a Merkle tree with one leaf each, sorted by name, for parameters, buffers,
// the optimizer's state, the average of the weights, and the loss scale.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/receipt/merkle_tree.h"

namespace lockstep {

struct CheckpointContents;  // checkpoint/checkpoint_directory.h

struct TrainingStateParts {
  StateDict weights, optimizer, average;
  std::optional<LossScalerState> loss_scaler;
};

struct StateDigest {
  std::vector<std::string> names;  // those of named_parts(), sorted
  std::vector<Digest> leaves;
  Digest root{};

  // Leaves by name, in hexadecimal digits, for logs.
  std::map<std::string, std::string> by_name() const;
};

// "fc.weight", "optimizer/momentum.fc.weight", "average/fc.weight", "loss_scaler"; in the order of the model.
std::vector<std::pair<std::string, Tensor>> named_parts(const TrainingStateParts& parts);

StateDigest state_digest(const TrainingStateParts& parts);
// The same for a checkpoint, without a model.
StateDigest state_digest(const CheckpointContents& checkpoint);

// Whether a name of a state's part is that of a weight or a buffer.
bool names_weight(std::string_view name);
// Returns the first weight, or else the first name, whose leaf differs. Empty if there is none, or not as many leaves.
std::string first_difference(const StateDigest& state, const std::vector<Digest>& leaves);

}  // namespace lockstep
