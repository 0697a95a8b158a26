// The weights that training and evaluation begin with: from the seed, or from --init-from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "apps/lockstep/options/common_options.h"

namespace lockstep::app {

// Makes a model on the job's devices, with initial weights from the seed or from the file.
std::unique_ptr<Module> make_initialized_model(const CommonOptions& options, const ToolJob& job,
                                               const DataSchema& schema);
// Returns a text entry from the recipe of a checkpoint, of a folder of checkpoints, or of the checkpoint that has a
// weights.safetensors. Other files of weights have no recipe.
std::optional<std::string> recipe_text(const std::string& weights, std::string_view name);
// Writes a notice if the weights of --init-from fit the model but learned from other data: from another text, from
// equally many classes with other names, or from other columns.
void notice_other_data(const CommonOptions& options, const DataSource& data);

}  // namespace lockstep::app
