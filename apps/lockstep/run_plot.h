// The curves of a run: for its picture, and for its page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/plot.h"
#include "lockstep/train/training_observer.h"
#include "train_options.h"

namespace lockstep::app {

std::vector<PlotPanel> run_panels(const TrainOptions& options, const std::vector<EpochReport>& epochs);

// The picture of --plot, drawn after each epoch.
class RunPlot final : public TrainingObserver {
 public:
  // The options must outlive it.
  RunPlot(const TrainOptions& options, std::string title) : options_(options), title_(std::move(title)) {}

  std::string label() const override { return "the plot"; }
  AfterFailure after_failure() const override { return AfterFailure::goes_on; }
  void start(const TrainingStart& start) override;
  void epoch(const EpochReport& report) override;
  void end(const TrainingResult&) override { draw(); }

 private:
  void draw() const;

  const TrainOptions& options_;
  const std::string title_;
  std::vector<EpochReport> epochs_;  // of the whole run, also of what came before it was resumed
};

}  // namespace lockstep::app
