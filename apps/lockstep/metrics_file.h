// The file of --metrics-file: how a run is doing, for Prometheus. Each rank has its own.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "lockstep/train/training_observer.h"
#include "train_options.h"

namespace lockstep::app {

// metrics.prom of rank 0, metrics.rank1.prom of rank 1.
std::filesystem::path metrics_file(const std::string& path, int rank);

class MetricsFile final : public TrainingObserver {
 public:
  // The arguments must outlive it.
  MetricsFile(const TrainOptions& options, const ToolJob& job);

  std::string label() const override { return "the metrics file"; }
  AfterFailure after_failure() const override { return AfterFailure::goes_on; }
  // The file is replaced at most once a second, and at once after an epoch and at the end.
  void start(const TrainingStart& start) override;
  void step(const StepReport& report) override;
  void epoch(const EpochReport& report) override;
  void end(const TrainingResult&) override { write(); }

 private:
  std::string text() const;
  void write();

  const TrainOptions& options_;
  const ToolJob& job_;
  std::string recipe_;
  const std::filesystem::path file_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point written_{};
  StepReport last_;
  EpochReport epoch_;
  double examples_ = 0;
};

}  // namespace lockstep::app
