// Internal: writes the receipt of a training. It is never behind a checkpoint: a run that is resumed from one finds its
// link.
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
  // `device`: the kind, "cpu" or "cuda". `state`: that of the run, where it begins. `resumed_from`: the folder of the
  // checkpoint's run, if it was resumed. The data must outlive the observer.
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
  bool names_weights_ = true;  // those after its last link
};

}  // namespace lockstep
