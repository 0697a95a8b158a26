// Internal: writes the receipt of a training. The receipt covers a step before a checkpoint of the step exists, so a
// run that resumes from the checkpoint finds the step's link.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/receipt/receipt_writer.h"
#include "lockstep/train/step_observer.h"

namespace lockstep {

class ReceiptObserver final : public StepObserver {
 public:
  // `device`: the kind, "cpu" or "cuda". `state`: returns the state of the run, at its start. `resumed_from`: the
  // folder of the run that was resumed, or empty. The data must outlive the observer.
  ReceiptObserver(ReceiptOptions options, std::string device, const Dataset& train, const Dataset* test,
                  std::filesystem::path resumed_from, std::function<StateDigest()> state);

  std::string label() const override { return "the receipt"; }
  void start(const TrainingStart& start) override;
  void settled(const SettledStep& state, bool urgent) override;
  void checkpoint(const std::filesystem::path& folder) override;

 private:
  const ReceiptOptions options_;
  const std::string device_;
  const Dataset& train_;
  const Dataset* const test_;
  const std::filesystem::path resumed_from_;
  const std::function<StateDigest()> state_;
  const Module* module_ = nullptr;
  std::optional<ReceiptWriter> writer_;
  bool names_weights_ = true;  // the receipt names the weights after its last link
};

}  // namespace lockstep
