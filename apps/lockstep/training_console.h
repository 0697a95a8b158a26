// Tells the user how training goes: lines on standard output, a progress bar, and what could not be written. In a job
// of several ranks, only rank 0 does this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/options/train_options.h"
#include "apps/lockstep/progress_bar.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_observer.h"

namespace lockstep::app {

// Returns "resnet18 on [cpu:0, cpu:1] in each of 2 ranks", or "... on 16 CPU devices", as a title of pictures.
std::string run_title(const TrainOptions& options, const ToolJob& job);

class TrainingConsole final : public TrainingObserver {
 public:
  // Prints where and what will be trained. `recipe`: Trainer::recipe(). All references must outlive the observer.
  // `cores`: the number of cores of each rank.
  TrainingConsole(const TrainOptions& options, const ToolJob& job, const Recipe& recipe, const DataSource& data,
                  const std::vector<std::int64_t>& cores);

  std::string label() const override { return "the progress"; }
  void step(const StepReport& report) override;
  void epoch(const EpochReport& report) override;
  void end(const TrainingResult&) override { bar_.reset(); }
  void abort(const std::string&) override { bar_.reset(); }
  void failed(const ObserverFailure& failure) override;
  // Prints the last lines.
  void print(const TrainingResult& result) const;

 private:
  const TrainOptions& options_;
  const ToolJob& job_;
  const std::int64_t examples_;
  const std::vector<std::string> class_names_;
  std::string where_;
  std::optional<ProgressBar> bar_;
  double seconds_ = 0, data_seconds_ = 0;
  double part_ = 0;    // of the current epoch that is over
  double epochs_ = 0;  // trained; --max-steps may cut the last one short
};

}  // namespace lockstep::app
