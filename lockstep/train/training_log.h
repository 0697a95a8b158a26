// Internal: the log of a training run, as JSON lines: {"event": "start"}, "step", "epoch", "end". A log that cannot be
// written does not end the run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/log_writer.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// What the start event says. The pointers must outlive the log.
struct LoggedRun {
  std::vector<Device> devices;
  int shards = 1;
  int world_size = 1;
  std::string backend = "host";
  const Module* module = nullptr;
  const Recipe* recipe = nullptr;
};

// The line of an epoch: {"event": "epoch", "epoch", "seconds", "data_seconds", "train_loss", "test_acc",
// "test_correct", "test_total"}, and "metrics", an object of values by name, if there are any. Without test data, or
// with metrics but no accuracy, there are no "test_..." fields.
nlohmann::ordered_json epoch_event(const EpochReport& report);

class TrainingLog {
 public:
  // Continues the file if the run has made steps already: events after `position` are removed. Throws if it cannot open
  // the file.
  TrainingLog(const std::filesystem::path& path, const TrainingPosition& position, LoggedRun run);

  void step(const StepReport& report);
  void epoch(const EpochReport& report);
  // Nothing if the run was stopped before its first step had settled the shapes of all weights.
  void end(const TrainingResult& result, const Module& module);
  // Why the log is incomplete: the first failure. Nothing is written after it. Empty: the log is complete.
  const std::string& error() const { return error_; }

 private:
  void start();
  void write(const nlohmann::ordered_json& event);

  LoggedRun run_;
  std::optional<LogWriter> writer_;
  std::string error_;
  bool started_ = false;
};

}  // namespace lockstep
