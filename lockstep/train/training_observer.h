// What watches a training: a log, a progress bar, a page. Trainer tells all of its observers what happens.
//
//   struct Notes : TrainingObserver {
//     std::string label() const override { return "the notes"; }
//     void epoch(const EpochReport& report) override { file << report.epoch << ' ' << report.train_loss << '\n'; }
//     std::ofstream file{"notes.txt"};
//   };
//   trainer.observe(std::make_shared<Notes>());
//
// Each rank calls its own observers, in this order: those of TrainerOptions (receipt, log, TensorBoard; in rank 0),
// those of observe() as they came, then on_step, on_epoch, and on_update. An observer may wait for tensors, but must
// not exchange with other ranks: other ranks need not have it.
//
// An observer that throws does not end the training, unless it says so, and except in start(), and by an error of the
// training itself: that of a task or of a lost rank. TrainingResult::failures has a line for it, and other observers
// get failed().
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/device/device.h"
#include "lockstep/train/training_result.h"

namespace LOCKSTEP_API lockstep {

struct Metric;

// What begins. The pointers hold until train() returns.
struct TrainingStart {
  TrainingPosition position{};  // where the run begins, or goes on
  const Recipe* recipe = nullptr;
  Module* module = nullptr;
  const std::vector<Metric>* metrics = nullptr;  // of TrainerOptions; empty: the accuracy alone
  std::vector<Device> devices{};                 // of this process
  int shards = 1;
  int rank = 0, world_size = 1;
  std::string backend = "host";  // of the ranks
};

class TrainingObserver {
 public:
  // What becomes of an observer that throws.
  enum class AfterFailure {
    ends,           // it is not called again: what it writes is incomplete
    goes_on,        // it replaces its file as a whole, also in end(), which makes up for earlier calls
    ends_training,  // the training is of no use without it
  };

  virtual ~TrainingObserver() = default;
  // For messages: "the log".
  virtual std::string label() const = 0;
  virtual AfterFailure after_failure() const { return AfterFailure::ends; }

  // Before the first step of each train(). An exception ends the training, because nothing is lost yet.
  virtual void start(const TrainingStart&) {}
  // When a step has been described. Its weights may not be ready yet; reading them waits.
  virtual void update(std::int64_t /*step*/) {}
  // In the order of steps and epochs. The report of a step comes two steps later, because the host does not wait for
  // losses.
  virtual void step(const StepReport&) {}
  virtual void epoch(const EpochReport&) {}
  // In rank 0: a checkpoint of all that was reported before is in `folder`, the save folder.
  virtual void checkpoint(const std::filesystem::path& /*folder*/) {}
  // One of these comes last.
  virtual void end(const TrainingResult&) {}
  virtual void abort(const std::string& /*why*/) {}
  // Another observer has failed: for the first time, if it goes on.
  virtual void failed(const ObserverFailure&) {}
};

}  // namespace lockstep
