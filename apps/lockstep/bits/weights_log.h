// Logs hashes of the weights after every step, one line per step, to compare two runs bit by bit.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/train/log_writer.h"
#include "lockstep/train/training_observer.h"

namespace lockstep::app {

struct WeightsRecord {
  std::int64_t step = 0;
  std::string weights_sha256;                     // the hash in the log of `lockstep train`
  std::map<std::string, std::string> parameters;  // StateDigest::by_name()
};

class WeightsLog final : public TrainingObserver {
 public:
  explicit WeightsLog(std::filesystem::path path) : path_(std::move(path)) {}

  std::string label() const override { return "the log of the weights"; }
  // A comparison of runs needs the complete log.
  AfterFailure after_failure() const override { return AfterFailure::ends_training; }
  // Continues the file if the run goes on: removes the lines of steps after its position.
  void start(const TrainingStart& start) override;
  // Waits for the weights.
  void update(std::int64_t step) override;

 private:
  const std::filesystem::path path_;
  std::optional<LogWriter> log_;
  const Module* module_ = nullptr;
};

// Throws an error that names the file and the line if the file is not such a log.
std::vector<WeightsRecord> read_weights_log(const std::filesystem::path& path);

// Finds a parameter or buffer by name. If there is none, throws an error that names an existing one.
Parameter find_parameter(const Module& module, const std::string& name);
// Flips the lowest bit of the first element of a parameter or buffer on this rank, after a step.
class BitFlip final : public TrainingObserver {
 public:
  BitFlip(std::int64_t step, std::string parameter) : step_(step), parameter_(std::move(parameter)) {}

  std::string label() const override { return "--inject-flip"; }
  AfterFailure after_failure() const override { return AfterFailure::ends_training; }
  void start(const TrainingStart& start) override { module_ = start.module; }
  void update(std::int64_t step) override;

 private:
  const std::int64_t step_;
  const std::string parameter_;
  const Module* module_ = nullptr;
};

}  // namespace lockstep::app
