// Reports a training run to its user: lines on standard output, a progress bar, the JSON-lines log, and the plot. In a
// job of several ranks, rank 0 does this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/log_writer.h"
#include "lockstep/train/progress_bar.h"
#include "lockstep/train/trainer.h"
#include "train_options.h"

namespace lockstep::app {

class RunReport {
 public:
  // Installs the trainer's callbacks. All arguments must outlive the trainer. `start` is where a resumed run continues:
  // later steps are removed from the log, and the plot begins with the finished epochs. `cores` has those of each rank.
  RunReport(const TrainOptions& options, const Job& job, const Module& net, Trainer& trainer, std::int64_t examples,
            const TrainingPosition& start, const std::vector<std::int64_t>& cores);
  // Prints the last lines.
  void finish(const TrainingResult& result);

 private:
  // "recipe 5f56616c: seed 0, 8 shards, batch 256, sgd at 0.1, f32", and the cores that stay idle.
  std::string recipe_line() const;
  void start();
  void step(const StepReport& report);
  void epoch(const EpochReport& report);
  void draw_plot() const;

  const TrainOptions& options_;
  const Job& job_;
  const Module& net_;
  Trainer& trainer_;
  std::int64_t examples_;
  std::string where_;
  std::optional<LogWriter> log_;
  std::optional<ProgressBar> bar_;
  std::vector<EpochResult> plotted_;
  double seconds_ = 0;
  bool started_ = false;
};

}  // namespace lockstep::app
