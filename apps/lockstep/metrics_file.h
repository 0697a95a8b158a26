// The file of --metrics-file: how a run is doing, for Prometheus. Each rank has its own.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "lockstep/train/trainer.h"
#include "train_options.h"

namespace lockstep::app {

// metrics.prom of rank 0, metrics.rank1.prom of rank 1.
std::filesystem::path metrics_file(const std::string& path, int rank);

class MetricsFile {
 public:
  // The arguments must outlive it.
  MetricsFile(const TrainOptions& options, const ToolJob& job, const Recipe& recipe, const TrainingPosition& start);

  // The file is replaced at most once a second, and at once after an epoch and at the end.
  void step(const StepReport& report);
  void epoch(const EpochReport& report);
  void finish();
  // Why the file is not up to date. Empty: it is.
  const std::string& error() const { return error_; }

 private:
  std::string text() const;
  void write();

  const TrainOptions& options_;
  const ToolJob& job_;
  const std::string recipe_;
  const std::filesystem::path file_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point written_{};
  StepReport last_;
  EpochReport epoch_;
  double examples_ = 0;
  std::string error_;
};

}  // namespace lockstep::app
