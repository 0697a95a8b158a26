// What a run's folder says of the run: run.json, and run.toml, which has the options of run.json for people and for
// --config.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/options/train_options.h"
#include "lockstep/task/run.h"

namespace lockstep::app {

// The run of these options, whose data have been read. RunDescription::options are those that decide the result: none
// that name where to write, and those of the devices only if the user gave them.
RunDescription describe_run(const TrainOptions& options, const ToolJob& job, const Recipe& recipe);

// Two runs of one key have the same result: the recipe decides every step, and other options how many there are and
// what is measured. Whoever compares steps alone compares recipes, which the key covers: a resumed run may be longer
// than its checkpoint's was to be, and an audit trains some of the steps.
std::string run_key(const TrainOptions& options, const RunDescription& run);

// Writes run.json and run.toml in the folder --save. A resumed run whose checkpoint has weights of --init-from keeps
// the older files, which name them.
void write_run_files(const TrainOptions& options, const RunDescription& run);

// The options in run.json of a folder, as `train --config` reads those of run.toml, with the data opened. Runs of older
// versions have them in run.toml alone. `more`: words of a command line that count instead of those of the file. Unless
// `with_weights`, without those of --init-from, whose file may be gone.
TrainOptions read_run_config(const std::string& folder, const std::vector<std::string>& more = {},
                             bool with_weights = false);

}  // namespace lockstep::app
