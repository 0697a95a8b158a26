// The file run.toml of a run's folder: the options that decide its result, so that --config repeats it.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/options/train_options.h"

namespace lockstep::app {

// Without options that name where to write, and without those of the devices unless the user gave them.
std::string run_config(const TrainOptions& options, const ToolJob& job, const Recipe& recipe);

// Writes run.toml in the folder --save. A resumed run whose checkpoint has weights of --init-from keeps the older file,
// which names them.
void write_run_config(const TrainOptions& options, const ToolJob& job, const Recipe& recipe);

// The options of the run in a folder, as `train --config` reads them, with its data opened. `more`: words of a command
// line that count instead of those of the file. Unless `with_weights`, without those of --init-from, whose file may be
// gone.
TrainOptions read_run_config(const std::string& folder, const std::vector<std::string>& more = {},
                             bool with_weights = false);

}  // namespace lockstep::app
