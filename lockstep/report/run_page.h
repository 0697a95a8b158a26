// The page of a training run, report.html: collects what it shows, and writes it now and then, at the end, and when the
// run fails.
//
//   trainer.observe(std::make_shared<RunPage>(trainer, RunPageOptions{.folder = "runs/7", .title = "LeNet"}));
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/runtime/timeline.h"
#include "lockstep/task/data_source.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_observer.h"

namespace LOCKSTEP_API lockstep {

struct RunPageOptions {
  // report.html is written here. The folder is made if it does not exist.
  std::filesystem::path folder{};
  // The headline; empty: the recipe's "model".
  std::string title{};
  // The data that the trainer trains on: shows a confusion matrix or a scatter, and the worst examples of the
  // validation part. Null: the page has neither.
  std::shared_ptr<const DataSource> data{};
  // The folder of a checkpoint from which the run goes on, or its run's: earlier steps are taken from a page there, if
  // that is of the same recipe. They are also taken from a page in `folder`.
  std::filesystem::path resumed_from{};
  // Shows the command line and the host's name.
  bool origin = false;
  // One of these shows a timeline of some early steps: a recording that exists, which must live until the training
  // ends, or the Runtime that trains.
  const Timeline* timeline = nullptr;
  Runtime* runtime = nullptr;
};

// For rank 0. Runs the model on validation examples at the end, without a change of weights or random numbers.
class RunPage final : public TrainingObserver {
 public:
  // The trainer must outlive the page.
  RunPage(Trainer& trainer, RunPageOptions options);
  ~RunPage() override;

  std::string label() const override { return "the page"; }
  AfterFailure after_failure() const override { return AfterFailure::goes_on; }
  void start(const TrainingStart& start) override;
  void step(const StepReport& report) override;
  void epoch(const EpochReport& report) override;
  void end(const TrainingResult& result) override;
  void abort(const std::string& why) override;

 private:
  class Contents;
  const std::unique_ptr<Contents> contents_;
};

}  // namespace lockstep
