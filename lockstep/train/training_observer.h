// What watches a training: a log, a progress bar, a page. Trainer tells all of its observers what happens.
//
//   struct Notes : TrainingObserver {
//     std::string label() const override { return "the notes"; }
//     void epoch(const EpochReport& report) override { file << report.epoch << ' ' << report.train_loss << '\n'; }
//     std::ofstream file{"notes.txt"};
//   };
//   trainer.observe(std::make_shared<Notes>());
//
// Each rank calls its own observers in this order: those of TrainerOptions (receipt, log, TensorBoard; in rank 0),
// those of observe() in the order of the calls, then on_step, on_epoch, and on_update. An observer may wait for
// tensors, but must not communicate with other ranks, because they may not have it.
//
// An exception of an observer ends the training only in start(), if after_failure() says so, or if it is an error of
// the training itself (TaskError, CommError). Otherwise TrainingResult::failures has a line for it, and the other
// observers get failed().
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

// The training that begins. The pointers are valid until train() returns.
struct TrainingStart {
  TrainingPosition position{};  // where the run starts or resumes
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
  // What happens to an observer that throws.
  enum class AfterFailure {
    ends,           // it is not called again: what it writes is incomplete
    goes_on,        // it replaces its file as a whole, also in end(), which makes up for earlier calls
    ends_training,  // the training is useless without it
  };

  virtual ~TrainingObserver() = default;
  // Name for messages: "the log".
  virtual std::string label() const = 0;
  virtual AfterFailure after_failure() const { return AfterFailure::ends; }

  // Called before the first step of each train(). An exception ends the training, because nothing is lost yet.
  virtual void start(const TrainingStart&) {}
  // Called when a step has been described. Its weights may not be ready yet; reading them waits.
  virtual void update(std::int64_t /*step*/) {}
  // Called in the order of steps and epochs. A step is reported up to two steps later, because the host does not wait
  // for losses.
  virtual void step(const StepReport&) {}
  virtual void epoch(const EpochReport&) {}
  // Called in rank 0 when `folder`, the save folder, has a checkpoint of all that was reported before.
  virtual void checkpoint(const std::filesystem::path& /*folder*/) {}
  // Either end() or abort() is called last.
  virtual void end(const TrainingResult&) {}
  virtual void abort(const std::string& /*why*/) {}
  // Called after another observer has failed, but only for its first failure.
  virtual void failed(const ObserverFailure&) {}
};

}  // namespace lockstep
