// Reports a training run to its user: lines on standard output, a progress bar, the JSON-lines log, the plot, and the
// page. In a job of several ranks, rank 0 does this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "learning_task.h"
#include "lockstep/train/plot.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_log.h"
#include "metrics_file.h"
#include "progress_bar.h"
#include "run_page.h"
#include "train_options.h"

namespace lockstep::app {

class RunReport {
 public:
  // Installs the trainer's callbacks. All arguments must outlive the trainer. `start` is where a resumed run continues:
  // later steps are removed from the log, and the plot begins with the finished epochs. `cores` has those of each rank.
  RunReport(const TrainOptions& options, const ToolJob& job, Module& net, Trainer& trainer, const Examples& data,
            const Examples& test, const TrainingPosition& start, const std::vector<std::int64_t>& cores);
  // Call it when training begins. `timeline` is that of --trace, or null.
  void begin(const Timeline* timeline);
  // The reports go there, too.
  void set_metrics(MetricsFile* metrics) { metrics_ = metrics; }
  // Call it when training is over: takes what the page needs from the timeline, which need not live longer.
  void end_timeline();
  // Says on the page why the training failed.
  void fail(const std::string& why);
  // Prints the last lines, and what could not be written.
  void finish(const TrainingResult& result);

 private:
  // "recipe 5f56616c: seed 0, 8 shards, batch 256, sgd at 0.1, f32", and the cores that stay idle.
  std::string recipe_line() const;
  void step(const StepReport& report);
  void epoch(const EpochReport& report);
  void report_log();
  std::vector<PlotPanel> panels() const;
  void draw_plot();
  void report_page();

  const TrainOptions& options_;
  const ToolJob& job_;
  const Module& net_;
  Trainer& trainer_;
  std::int64_t examples_;
  std::vector<std::string> class_names_;
  std::string where_, title_;
  std::optional<TrainingLog> log_;
  std::optional<ProgressBar> bar_;
  std::vector<EpochReport> plotted_;
  std::string plot_error_;  // of the last picture
  std::optional<RunPage> page_;
  bool page_broken_ = false;
  MetricsFile* metrics_ = nullptr;
  bool metrics_broken_ = false;
  bool log_broken_ = false;
  double seconds_ = 0, data_seconds_ = 0;
};

}  // namespace lockstep::app
