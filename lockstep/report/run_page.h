// The page of a training run, report.html. It is written at the start, every 30 s or more, at the end, and when the run
// fails.
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
  // Title of the page; empty: the recipe's "model".
  std::string title{};
  // Data that the trainer trains on. The page then shows a confusion matrix or a scatter plot of the validation part,
  // and its worst examples. Null: it has neither.
  std::shared_ptr<const DataSource> data{};
  // Folder of the checkpoint that the run continues, or of that checkpoint's run. Earlier steps are taken from a page
  // there, or from one in `folder`, if its recipe is the same.
  std::filesystem::path resumed_from{};
  // Shows the command line and the host's name.
  bool origin = false;
  // Set one of these to show a timeline of some early steps: a recording in progress, which must live until the
  // training ends, or the Runtime that trains.
  const Timeline* timeline = nullptr;
  Runtime* runtime = nullptr;
};

// For rank 0. Runs the model on validation examples at the end, and changes no weights and no random numbers.
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
