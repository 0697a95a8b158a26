// Progress of a run, as a file for Prometheus. Each rank has its own file.
//
//   trainer.observe(std::make_shared<MetricsFile>(trainer, "run.prom"));
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "lockstep/train/trainer.h"
#include "lockstep/train/training_observer.h"

namespace LOCKSTEP_API lockstep {

// Returns metrics.prom for rank 0, metrics.rank1.prom for rank 1.
std::filesystem::path metrics_file(const std::filesystem::path& path, int rank);

class MetricsFile final : public TrainingObserver {
 public:
  // The trainer must outlive it.
  MetricsFile(const Trainer& trainer, const std::filesystem::path& path);

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

  const Trainer& trainer_;
  const std::filesystem::path file_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point written_{};
  StepReport last_;
  EpochReport epoch_;
  double examples_ = 0;
};

}  // namespace lockstep
