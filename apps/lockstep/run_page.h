// Collects what the page of a training run shows, and writes the page: now and then, at the end, and when it fails.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "learning_task.h"
#include "lockstep/runtime/timeline.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_observer.h"
#include "report_page.h"
#include "train_options.h"

namespace lockstep::app {

class RunPage final : public TrainingObserver {
 public:
  struct Sources {
    const TrainOptions& options;
    const ToolJob& job;
    Module& net;
    Trainer& trainer;
    const DataSource& data;
    std::string title;
  };
  // The sources must outlive the page. Of a run that continues: takes the steps before `start` from the page that it
  // finds in the folder, or beside the checkpoint, if that is of the same recipe.
  RunPage(Sources sources, const TrainingPosition& start);
  ~RunPage() override;

  // Records the timeline of some early steps; `whole` is that of --trace, if there is one, which must live until the
  // training ends.
  void record(const Timeline* whole);
  std::string label() const override { return "the page"; }
  AfterFailure after_failure() const override { return AfterFailure::goes_on; }
  void step(const StepReport& report) override;
  void epoch(const EpochReport& report) override;
  void end(const TrainingResult& result) override;
  void abort(const std::string& why) override;

 private:
  // Ends the recording, if steps have not.
  void end_timeline();
  void take_steps(const TrainingPosition& start);
  std::string data() const;
  void look_at_layers();
  void add_facts(ReportPage& page) const;
  void write(ReportPage page);
  void write_now_and_then();
  std::string running_status() const;

  const Sources from_;
  const std::filesystem::path file_;
  std::vector<PageStep> steps_;
  std::int64_t each_ = 1;  // steps in one of them
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
  std::vector<LayerSummary> layers_;
  std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
  std::string started_;
  std::vector<EpochReport> epochs_;  // of the whole run, also of what came before it was resumed

  std::optional<Timeline> own_timeline_;
  const Timeline* timeline_ = nullptr;
  std::int64_t window_begin_ = 0, window_first_ = 0;
  std::optional<PageTimeline> window_;
};

}  // namespace lockstep::app
