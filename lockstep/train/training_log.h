// Internal: writes the log of a training as JSON lines: {"event": "start"}, "step", "epoch", "end".
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/train/log_writer.h"
#include "lockstep/train/training_observer.h"

namespace lockstep {

// Returns the line of an epoch: {"event": "epoch", "epoch", "seconds", "data_seconds", "train_loss", "test_acc",
// "test_correct", "test_total"}, and "metrics", an object of values by name, if there are any. There are no "test_..."
// fields without test data, or with metrics but no accuracy.
nlohmann::ordered_json epoch_event(const EpochReport& report);

class TrainingLog final : public TrainingObserver {
 public:
  explicit TrainingLog(std::filesystem::path path) : path_(std::move(path)) {}

  std::string label() const override { return "the log"; }
  // Continues the file if the run goes on: removes the events after its position.
  void start(const TrainingStart& start) override;
  void step(const StepReport& report) override;
  void epoch(const EpochReport& report) override;
  // Writes nothing if the run was stopped before its first step, which settles the shapes of all weights.
  void end(const TrainingResult& result) override;

 private:
  void write_start();

  const std::filesystem::path path_;
  TrainingStart start_;
  std::optional<LogWriter> writer_;
  bool started_ = false;
};

}  // namespace lockstep
