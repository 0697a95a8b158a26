// Describes a run in its folder: run.json, and run.toml, which has the options of run.json for people and for --config.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/options/train_options.h"
#include "lockstep/task/run.h"
#include "lockstep/train/training_observer.h"

namespace lockstep::app {

// Describes the run of these options, whose data have been read. RunDescription::options are those that decide the
// result: none that say where to write, and those of the devices only if the user gave them. A resumed run has the
// --init-from and --partial of the run that it continues.
RunDescription describe_run(const TrainOptions& options, const ToolJob& job, const Recipe& recipe);

// Two runs with the same key have the same result: the recipe decides every step, and other options the number of steps
// and what is measured. A new option that decides the result counts, unless run_config.cc says that the recipe has what
// it does. To compare only steps, compare recipes, which the key covers: a resumed run may be longer than its
// checkpoint's run was meant to be, and an audit trains some of the steps.
std::string run_key(const TrainOptions& options, const RunDescription& run);

// Writes run.json and run.toml in the folder --save once the run has claimed it. Observe it last, so that a run that
// another observer refuses writes nothing. A resumed run writes them with its first step: if it fails before, or has
// nothing left to do, they still describe the steps that the folder has. The options and the job must outlive it.
class RunFiles final : public TrainingObserver {
 public:
  RunFiles(const TrainOptions& options, const ToolJob& job) : options_(options), job_(job) {}

  std::string label() const override { return "the description of the run"; }
  // Nothing can use the weights without it.
  AfterFailure after_failure() const override { return AfterFailure::ends_training; }
  void start(const TrainingStart& start) override;
  void update(std::int64_t step) override;

 private:
  void write();

  const TrainOptions& options_;
  const ToolJob& job_;
  const Recipe* recipe_ = nullptr;
  bool written_ = false;
};

// Reads the options in run.json of a folder, as `train --config` reads those of run.toml, and opens the data. Runs of
// older versions have them in run.toml alone. `more`: words of a command line that override the file. Unless
// `with_weights`, leaves out --init-from and --partial, because the file of weights may be gone.
TrainOptions read_run_config(const std::string& folder, const std::vector<std::string>& more = {},
                             bool with_weights = false);

}  // namespace lockstep::app
