// Internal: prepares the weights of a file before they replace those of a model.
#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/nn/parameter_change.h"

namespace lockstep {

struct CheckpointContents;  // checkpoint/checkpoint_directory.h

// Reads what load_weights() reads, with its errors. Until the changes are committed, the model is as before.
std::vector<ParameterChange> weights_change(const std::filesystem::path& path, Module& module);
// The same for a checkpoint in memory.
std::vector<ParameterChange> weights_change(CheckpointContents checkpoint, Module& module);

}  // namespace lockstep
