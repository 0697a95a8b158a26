// The curves of a run: for its picture, and for its page.
//
//   trainer.observe(std::make_shared<RunPlot>("run.svg", RunPlotOptions{.title = "LeNet", .epochs = 10}));
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/metrics.h"
#include "lockstep/train/plot.h"
#include "lockstep/train/training_observer.h"

namespace LOCKSTEP_API lockstep {

// Returns panels of accuracy, losses, and other metrics. by_others: if there are other metrics, they come first and
// accuracy is left out, as for texts, which are judged by perplexity, and for numbers, which are judged by error.
// Metric::smaller_is_better decides which value of a curve is its best one.
std::vector<PlotPanel> run_panels(const std::vector<EpochReport>& epochs, const std::vector<Metric>& metrics,
                                  bool by_others);

struct RunPlotOptions {
  std::string title{};
  std::int64_t epochs = 1;  // planned
  bool by_others = false;
};

// A picture, drawn after each epoch.
class RunPlot final : public TrainingObserver {
 public:
  RunPlot(std::filesystem::path file, RunPlotOptions options) : file_(std::move(file)), options_(std::move(options)) {}

  std::string label() const override { return "the plot"; }
  AfterFailure after_failure() const override { return AfterFailure::goes_on; }
  void start(const TrainingStart& start) override;
  void epoch(const EpochReport& report) override;
  void end(const TrainingResult&) override { draw(); }

 private:
  void draw() const;

  const std::filesystem::path file_;
  const RunPlotOptions options_;
  std::vector<Metric> metrics_;      // of the training
  std::vector<EpochReport> epochs_;  // of the whole run, including those before it was resumed
};

}  // namespace lockstep
