// Internal: writes the TensorBoard file of a training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/data/dataset.h"
#include "lockstep/train/step_observer.h"
#include "lockstep/train/tensorboard.h"

namespace lockstep {

class TrainingBoard final : public StepObserver {
 public:
  // A new run shows some examples of `data`, if they are pictures, and the graph of the model for `first`, a batch of
  // one example; neither if `first` is undefined. `data` must outlive the observer.
  TrainingBoard(TensorBoardLogOptions options, const Dataset& data, Tensor first)
      : options_(std::move(options)), data_(data), first_(std::move(first)) {}

  std::string label() const override { return "the file for TensorBoard"; }
  // Tells TensorBoard to hide what earlier files of the folder have after the run's position; all, if the run is new.
  void start(const TrainingStart& start) override;
  // Returns whether histograms of weights and gradients are written for the step.
  bool observes(std::int64_t step) const override;
  void begin(std::int64_t step) override { step_ = step; }
  void backward(const std::function<double()>& loss_scale) override;
  void update(std::int64_t step) override;
  void step(const StepReport& report) override;
  void epoch(const EpochReport& report) override;

 private:
  void show_model();
  void histogram(const std::string& tag, const Tensor& values, double divisor, std::int64_t step);

  const TensorBoardLogOptions options_;
  const Dataset& data_;
  const Tensor first_;
  Module* module_ = nullptr;
  std::int64_t step_ = 0;      // in progress
  std::int64_t reported_ = 0;  // the latest step that was reported
  std::optional<TensorBoardWriter> board_;
};

}  // namespace lockstep
