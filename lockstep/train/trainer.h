// The training loop: shards over devices, one step a batch, evaluation after each epoch, checkpoints, exact resume.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/checkpoint/folder_claim.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/recorded_step.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/rate_meter.h"

namespace lockstep {

struct TrainerOptions {
  // Of this process.
  std::vector<Device> devices;
  // Joins the ranks of a job; null: there is but this process.
  std::shared_ptr<Communicator> communicator{};
  // V of the recipe: the shards that each micro-batch is cut into, at least one for each device of all ranks. 0: on CPUs
  // default_shards(batch_size / accumulate), so the bits do not depend on the devices; on GPUs one for each device, since
  // eight small kernels waste a GPU.
  int shards = 0;
  // The global batch, over all devices and ranks.
  std::int64_t batch_size = 256;
  // Micro-batches of a step, of batch_size / accumulate each, which has to come out even: for batches that memory has no
  // room for.
  std::int64_t accumulate = 1;
  // Steps are described once and then repeated, where that can be: see parallel/recorded_step.h. The bits are the same.
  bool record_steps = false;
  std::int64_t epochs = 10;
  // Ends the run early; 0: no limit.
  std::int64_t max_steps = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;
  DType dtype = DType::f32;
  // Of f16, which is trained with a scaled loss.
  LossScalerOptions loss_scaling{};
  // bf16: gradients and their sums are rounded to it, and half as much travels between ranks.
  DType gradients = DType::f32;
  double label_smoothing = 0;
  // Gradients are scaled to at most this norm; 0: not at all.
  double clip_norm = 0;
  // total_steps is filled in.
  ScheduleOptions schedule{};
  // Checkpoints go here, at the end and every `save_every` steps (0: after each epoch). Empty: none. Rank 0 writes them.
  std::filesystem::path save_folder{};
  std::int64_t save_every = 0;
  // What else decides the bits: model, optimizer, data, ... Compared on resume.
  Recipe recipe{};
};

struct StepReport {
  std::int64_t step = 0;   // from 1, over all epochs
  std::int64_t epoch = 0;  // from 1
  double loss = 0;         // mean over the global batch, before the update
  std::int64_t samples = 0;
  double images_per_second = 0;  // over the last few steps
  double seconds = 0;            // since the step before was heard of; short steps come in bursts
  std::optional<double> loss_scale;  // with f16: that of this step
  std::int64_t batch = 0;    // from 1, of
  std::int64_t batches = 0;  // the epoch's
};

struct EpochReport {
  std::int64_t epoch = 0;  // from 1
  double seconds = 0;      // of training, without evaluation
  double train_loss = 0;
  Accuracy test;
};

struct TrainingResult {
  std::int64_t steps = 0;
  bool stopped = false;  // by request_stop
  std::vector<EpochReport> epochs;
};

class Trainer {
 public:
  // The model has to be initialized on the devices; the optimizer has its parameters. `test` may be null.
  Trainer(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
          std::shared_ptr<const Dataset> test, TrainerOptions options);

  // Called in order; the losses of a step come a little after it was described, since nobody waits for them.
  std::function<void(const StepReport&)> on_step;
  std::function<void(const EpochReport&)> on_epoch;
  // Called when a step is described, before its weights are there: reading them waits. Steps count from 1.
  std::function<void(std::int64_t step)> on_update;

  // Goes on from the newest checkpoint in the folder, to the bit. Collective: every rank reads it, and where one cannot, or
  // finds another step, all throw its error, with its rank. The run is of no further use then.
  ResumedRun resume(const std::filesystem::path& folder);

  // Throws when a loss is not finite, naming the step, and when weights or the optimizer's state are not where a checkpoint is
  // due, naming the step and the tensor: no checkpoint holds what came of it. With f16, gradients that are not
  // finite at one loss scale only cost the step.
  TrainingResult train();

  // From any thread or a signal handler: ends after the step in progress, with a checkpoint if there is a folder. One rank
  // that is asked stops all of them, at the same step.
  void request_stop() { stop_.store(true, std::memory_order_relaxed); }

  // What decides the bits of this run. recipe_hash() of it names the run. "frozen" names the parameters that are frozen or
  // that no optimizer has, "evaluation_mode" the parts in that mode: as the constructor, resume(), and train() find them.
  // What a callback changes later is not in it.
  const Recipe& recipe() const { return options_.recipe; }
  // Empty where steps are recorded, or will be, or are not to be; else the reason: "it waits for data that it has computed".
  std::string why_not_recorded() const;
  // Empty where recorded steps are a CUDA graph, or are not recorded on GPUs; else the reason.
  std::string why_no_graph() const;
  Accuracy evaluate();

 private:
  struct PendingLoss {
    StepReport report;
    // Of each micro-batch: its share of the step, and its losses from all ranks.
    std::vector<std::pair<double, Batch>> losses;
    Batch stopped;      // a flag for each shard
    Tensor loss_scale;  // with f16
  };

  void run_micro_batch(Example& batch, std::int64_t batches);
  // Forward and backward; `share` of the step. Returns the losses.
  Batch learn(Batch x, const Batch& labels, double share);
  void update();
  // Both, and repeated where steps are recorded.
  Batch recorded_step(const Batch& x, const Batch& labels);
  bool records() const;
  void finish_step(std::int64_t batches);
  void read_losses(std::size_t leave);
  std::unique_ptr<FolderClaim> claim_save_folder() const;
  void save();
  std::string last_good_checkpoint() const;
  bool finished() const;
  // Whether the run ends here: the same on all ranks.
  bool stopping() const { return options_.communicator ? agreed_stop_ : stop_.load(std::memory_order_relaxed); }
  // Steps that so many micro-batches make.
  std::int64_t steps_of(std::int64_t batches) const {
    return (batches + options_.accumulate - 1) / options_.accumulate;
  }
  int rank() const { return options_.communicator ? options_.communicator->rank() : 0; }
  DataLoaderOptions rows_of_rank(DataLoaderOptions options) const;
  void record_fixed_parts();
  void choose_shards();
  void join_ranks();
  TrainingResult run();

  Module& module_;
  Optimizer& optimizer_;
  TrainerOptions options_;
  std::shared_ptr<const Dataset> test_;
  std::unique_ptr<DistributedDataParallel> distributed_;
  std::optional<LossScaler> scaler_;  // of f16
  std::unique_ptr<RecordedStep> recorded_;
  std::vector<bool> recorded_trainable_;  // which parameters it trains
  Batch described_;  // by recorded_: whose counts the shards have
  DataLoader loader_;
  TrainingPosition position_;
  PendingLoss current_;  // of the step that is being described
  std::deque<PendingLoss> pending_;
  RateMeter rate_;
  std::int64_t saved_step_ = -1;
  std::atomic<bool> stop_{false};
  bool agreed_stop_ = false;
};

}  // namespace lockstep
