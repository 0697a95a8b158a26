// Internal: the TensorBoard file of a training run. A file that cannot be written does not end the run.
#pragma once

#include <optional>
#include <string>

#include "lockstep/train/tensorboard.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

class TrainingBoard {
 public:
  // A run that has made steps already hides what earlier files of the folder have after them. Throws if it cannot make
  // the file.
  TrainingBoard(const TensorBoardLogOptions& options, const TrainingPosition& position, const Recipe& recipe);

  // Shows some training examples, if they are pictures, and the graph of the model for `first`, a batch of one.
  void start(Module& module, const Dataset& data, const Tensor& first);
  // Whether this step's weights and gradients are shown.
  bool has_histograms(std::int64_t step) const;
  // Call it before the update of such a step, and after it. The gradients have the factor `loss_scale`.
  void gradients(const Module& module, std::int64_t step, double loss_scale);
  void weights(const Module& module, std::int64_t step);
  void step(const StepReport& report);
  void epoch(const EpochReport& report, std::int64_t step);
  // Why the file is incomplete: the first failure. Nothing is written after it. Empty: the file is complete.
  const std::string& error() const { return error_; }

 private:
  template <typename F>
  void write(const F& f);
  void histogram(const std::string& tag, const Tensor& values, double divisor, std::int64_t step);

  const std::int64_t histogram_every_;
  std::optional<TensorBoardWriter> writer_;
  std::string error_;
};

}  // namespace lockstep
