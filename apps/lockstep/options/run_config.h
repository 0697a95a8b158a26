// Describes a run in its folder: run.json, and run.toml, which has the options of run.json for people and for --config.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/options/train_options.h"
#include "lockstep/task/run.h"

namespace lockstep::app {

// Describes the run of these options, whose data have been read. RunDescription::options are those that decide the
// result: none that say where to write, and those of the devices only if the user gave them.
RunDescription describe_run(const TrainOptions& options, const ToolJob& job, const Recipe& recipe);

// Two runs with the same key have the same result: the recipe decides every step, and other options the number of steps
// and what is measured. To compare only steps, compare recipes, which the key covers: a resumed run may be longer than
// its checkpoint's run was meant to be, and an audit trains some of the steps.
std::string run_key(const TrainOptions& options, const RunDescription& run);

// Writes run.json and run.toml in the folder --save. A run that resumes from weights of --init-from keeps the older
// files, because they name those weights.
void write_run_files(const TrainOptions& options, const RunDescription& run);

// Reads the options in run.json of a folder, as `train --config` reads those of run.toml, and opens the data. Runs of
// older versions have them in run.toml alone. `more`: words of a command line that override the file. Unless
// `with_weights`, leaves out --init-from and --partial, because the file of weights may be gone.
TrainOptions read_run_config(const std::string& folder, const std::vector<std::string>& more = {},
                             bool with_weights = false);

}  // namespace lockstep::app
