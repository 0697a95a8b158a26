// The training loop: shards over devices, one step per batch, evaluation after each epoch, checkpoints, exact resume.
//
//   Trainer trainer(net, sgd, train_data, test_data, {.batch_size = 256, .epochs = 10});
//   trainer.on_epoch = [](const EpochReport& e) { fmt::print("{} {}\n", e.epoch, e.test.value()); };
//   trainer.train();
//
// It trains where the model is, and places it if nobody did. In a program that makes a Job, it joins the job's ranks.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/weight_average.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/balancer.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/recorded_step.h"
#include "lockstep/receipt/receipt.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/tensorboard.h"
#include "lockstep/train/training_observer.h"
#include "lockstep/train/training_result.h"
#include "lockstep/train/watch.h"

namespace LOCKSTEP_API lockstep {

class BestCheckpoint;  // train/best_checkpoint.h
class FolderClaim;     // checkpoint/folder_claim.h
class Observers;       // train/observers.h
class TrainingClock;   // train/training_clock.h
struct StateDigest;    // receipt/state_digest.h

// Trainer::train() throws it for a loss that is not finite. All ranks throw it at the same step and may go on: a
// further call reports the steps that were in flight, and throws for the next such loss.
class NonFiniteLoss : public Error {
 public:
  using Error::Error;
};

struct TrainerOptions {
  // The devices of this process. Empty: the model's.
  std::vector<Device> devices{};
  // Ranks to join. Not set: those of the Job that the devices belong to; without a Job, this process trains alone.
  // Null: this process trains alone even if there is a Job.
  std::optional<std::shared_ptr<Communicator>> communicator{};
  // `split.shards` is V of the recipe: the number of shards that each micro-batch is cut into, at least one for each
  // device of all ranks. 0: on CPUs default_shards(batch_size / accumulate), so the bits do not depend on the devices;
  // on GPUs one for each device, because small kernels leave a GPU idle. default_shards() is at most 8, and leaves at
  // least 16 samples for each of several shards. More devices than shards are an error: set `split.shards`.
  // `split.balance` is the number of shards that each device computes: equal shares, by weights of all devices (rank
  // 0's first), or automatic, by measured speed. This does not change the bits and is not part of the recipe. All ranks
  // need the same value.
  SplitOptions split{};
  // Used with Balance::automatic.
  BalancerOptions balancer{};
  // The global batch, over all devices and ranks.
  std::int64_t batch_size = 256;
  // The number of micro-batches in a step; it must divide batch_size. Use more than one if a batch does not fit in
  // memory.
  std::int64_t accumulate = 1;
  // Throws if accumulate does not divide batch_size.
  std::int64_t micro_batch_size() const;
  // Describes a step once and then repeats it, where possible: see parallel/recorded_step.h. The bits are the same. A
  // callback that changes a layer's mode or option, or host values that `loss` or `forward` reads, must call
  // Trainer::forget_recording().
  bool record_steps = false;
  std::int64_t epochs = 10;
  // The run ends after this many steps, counted over all epochs. 0: no limit.
  std::int64_t max_steps = 0;
  bool shuffle = true;
  // Each epoch leaves out its last batch if it is not full, with all of its micro-batches. Tests use all examples.
  bool drop_last = false;
  // The order of the examples, instead of `shuffle`. The recipe has a hash of the orders of epochs 0 and 1.
  std::shared_ptr<const Sampler> sampler{};
  // Makes batches of examples that do not stack, in training and in tests: see DataLoaderOptions. The recipe says that
  // there is one; name it in `recipe`.
  Collate collate{};
  // Number of threads that prepare batches, in training and in tests, each a batch at a time:
  // DataLoaderOptions::workers. EpochReport::data_seconds tells whether more would help. Does not change the bits.
  int workers = 1;
  // Changes batches of training, such as MixUp({.classes = 10}); with `accumulate`, micro-batches. The recipe says that
  // there is one; name it in `recipe`.
  BatchTransform batch_transform{};
  // Seed of the order of the examples, unless the sampler has a seed of its own, and of their random transforms. Not
  // set: RuntimeOptions::seed of the devices' Runtime.
  std::optional<std::uint64_t> seed = {};
  DType dtype = DType::f32;
  // Used with f16, which trains with a scaled loss.
  LossScalerOptions loss_scaling{};
  // bf16: gradients and their sums are rounded to bf16, which halves the traffic between ranks.
  DType gradients = DType::f32;
  // Returns the mean loss of the model's outputs and the labels, both cut over the batch. Empty: cross entropy with
  // label_smoothing. Your own loss smooths the labels itself: label_smoothing is then an error. Name any other loss,
  // with its "label_smoothing", in `recipe`.
  std::function<Tensor(const Tensor& outputs, const Tensor& labels)> loss{};
  double label_smoothing = 0;
  // Computes the loss and the outputs of a batch from all its parts, in training and in evaluation. Replaces the
  // module's call and `loss`. Use it for examples of more than two parts, for models with several inputs or outputs,
  // and for losses that need more than one output and the labels. Name it in `recipe`, too. It must cast inputs to
  // `dtype` itself: if `dtype` is bf16 or f16 and nothing is computed in it, the first step throws.
  //
  //   .forward = [&](const Example& batch) -> BatchOutputs {
  //     const auto [y, redrawn] = net.forward(batch[0], batch[1]);
  //     return {.loss = mse_loss(y, batch[2]) + 0.1 * mse_loss(redrawn, batch[0]), .outputs = y};
  //   }
  BatchFunction forward{};
  // With micro-batches (`accumulate`): the divisor of the mean loss of these examples, such as the number of labels
  // that are not ignored, or the sum of their weights. Micro-batches count in this proportion, so the loss of a step is
  // that of the whole batch; a micro-batch of weight 0 is skipped. `batch` is in host memory and has some of the step's
  // examples; the result must be finite and at least 0. Empty: with the default loss, the number of labels that are not
  // ignored, otherwise the number of examples. Set it for a `loss` or `forward` that ignores or weights examples.
  std::function<double(const Example& batch)> loss_weight{};
  // Measured on the test data after each epoch. Empty: only the accuracy, for outputs [n, classes] and labels i64 [n],
  // or [n, classes, ...] and [n, ...]. Set it for anything else; test data without i64 labels is an error at the start.
  std::vector<Metric> metrics{};
  // Limit of the norm of all gradients together: they are scaled down to it if their norm is larger. 0: no limit.
  double clip_norm = 0;
  // Leave it out if the optimizer has a schedule. The Trainer sets total_steps. If base_lr is set, the constructor also
  // gives it to the optimizer, as set_learning_rate() does. With the default schedule, which is constant without a
  // warm-up, a callback may change the rate with set_learning_rate(); any other schedule overwrites that rate in the
  // next step. A callback may also change the rate of one group: a schedule keeps its ratio to the others. Checkpoints
  // hold all rates. Name lr_lambda in `recipe`: its entry "schedule" is then "lambda".
  ScheduleOptions schedule{};
  // Rank 0 writes checkpoints here, at the end and every `save_every` steps (0: after each epoch). Empty: no
  // checkpoints.
  std::filesystem::path save_folder{};
  std::int64_t save_every = 0;
  // train() continues from the newest checkpoint in the save folder, or starts, as resume_or_start() does. A run that
  // may be killed is then one program, started again and again.
  bool resume = false;
  // Number of newest checkpoints to keep.
  int keep_checkpoints = 2;
  // Rank 0 writes a log of the run to this file: one JSON object a line, for the start, each step, each epoch, and the
  // end, with the fields of `lockstep train --log`. A resumed run continues the file: later lines are removed. Empty:
  // no log. train() throws if it cannot open the file; a later failure ends the log, not the run: see
  // TrainingResult::failures.
  std::filesystem::path log_file{};
  // Rank 0 writes a file for TensorBoard: loss, rate, and speed of each step, test results of each epoch, the recipe.
  TensorBoardLogOptions tensorboard{};
  // The receipt of the run, with which audit() can check any of its steps. Before the first step, rank 0 reads all
  // examples once. A resumed run continues the receipt. All ranks need the same `every`. train() throws if it cannot
  // begin the receipt; a later failure ends it, not the run: see TrainingResult::failures.
  ReceiptOptions receipt{};
  // Early stopping, and the best checkpoint.
  WatchOptions watch{};
  // Decay of a moving average of the weights. Tests then measure the averaged weights. 0: no average.
  double average_decay = 0;
  // Everything else that decides the bits: model, initial weights, data, `loss`, `forward`, and lr_lambda. Trainer
  // cannot know them: if you leave one out, runs that differ only in it have the same hash. resume() compares the
  // recipe. An entry here replaces Trainer's entry of the same name.
  Recipe recipe{};
};

class Trainer {
 public:
  // Places the model if nobody did. The optimizer must have its parameters. `test` may be null.
  Trainer(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
          std::shared_ptr<const Dataset> test, TrainerOptions options = {});
  // Trainer trainer(net, sgd, Circle(), Circle());
  // Trainer trainer(net, sgd, Circle(), nullptr, {.epochs = 5});
  template <std::derived_from<Dataset> Train, std::derived_from<Dataset> Test>
  Trainer(Module& module, Optimizer& optimizer, Train train, Test test, TrainerOptions options = {})
      : Trainer(module, optimizer, std::make_shared<const Train>(std::move(train)),
                std::make_shared<const Test>(std::move(test)), std::move(options)) {}
  template <std::derived_from<Dataset> Train>
  Trainer(Module& module, Optimizer& optimizer, Train train, std::nullptr_t, TrainerOptions options = {})
      : Trainer(module, optimizer, std::make_shared<const Train>(std::move(train)), std::shared_ptr<const Dataset>(),
                std::move(options)) {}
  template <typename Train, typename Test, typename... More>
  requires(std::same_as<Train, DataLoader> || std::same_as<Test, DataLoader>)
      Trainer(Module& module, Optimizer& optimizer, const Train&, const Test&, const More&...)
      : Trainer(module, optimizer, std::shared_ptr<const Dataset>(), std::shared_ptr<const Dataset>()) {
    static_assert(!sizeof(Train),
                  "a Trainer takes data sets, and makes its loaders: "
                  "Trainer(net, sgd, train_data, test_data, {.batch_size = 256})");
  }
  ~Trainer();

  // Adds an observer of this rank's training. Call it between two calls of train().
  void observe(std::shared_ptr<TrainingObserver> observer);
  // Callbacks like TrainingObserver::step, epoch, and update, but an exception ends the training.
  std::function<void(const StepReport&)> on_step;
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(std::int64_t step)> on_update;

  // Continues from the newest checkpoint in the folder, or from the folder itself if it is a checkpoint, with the same
  // bits. Collective: rank 0 reads it and sends it to the others, so only rank 0 needs the folder. If a rank cannot
  // load it, all ranks throw that rank's error; make a new Trainer before you try again.
  ResumedRun resume(const std::filesystem::path& folder);
  // The same for a checkpoint that rank 0 has read; the argument of other ranks is ignored.
  ResumedRun resume(CheckpointContents checkpoint);
  // Continues from the newest checkpoint in the save folder; without one, the run starts, and the result is empty. A
  // program that calls it before train() can be started, killed, and started again by one command. Throws
  // RecipeMismatch if the folder has a checkpoint of another recipe. Collective, as resume().
  std::optional<ResumedRun> resume_or_start();

  // Throws if a loss is not finite, or if a checkpoint is due and a weight or the optimizer's state is not finite. The
  // error names the step and the tensor. Checkpoints therefore hold only finite values. With f16, a step whose
  // gradients are not finite is skipped, and the loss scale is halved.
  //
  // Before the first update, throws for errors that are known then: batch norm that would have one value per channel,
  // in any batch that this call reaches; test examples of another shape that the model cannot take; and, with the
  // default loss, labels of a TensorDataset that are not classes. For the first two it may pass an example through the
  // model, in evaluation mode.
  //
  // In one process, a second call goes on where a stop or an exception ended the first, at the first micro-batch of the
  // step that was not finished. Buffers such as running statistics keep what that step's forward passes gave them.
  TrainingResult train();
  // Trains to this step at most, and ends there as after request_stop(). All ranks must pass the same step.
  TrainingResult train_until(std::int64_t step);

  // Call it from any thread or from a signal handler. Training ends after the step in progress, with a checkpoint if
  // there is a save folder. A request to one rank stops all ranks at the same step. It counts once: the next train()
  // goes on. A request between two calls of train() stops the next one.
  void request_stop() { stop_.store(true, std::memory_order_relaxed); }

  // The recipe of this run: all options above that decide the bits, the optimizer with its options and groups, the
  // number of examples, and TrainerOptions::recipe. If TrainerOptions::recipe names everything else, recipe_hash() of
  // the whole recipe identifies the run. "frozen" lists the parameters that are frozen or that no optimizer has,
  // "evaluation_mode" the modules in that mode. The constructor, resume(), and train() update both entries, but not
  // later changes by a callback.
  const Recipe& recipe() const { return options_.recipe; }
  // The options as this rank trains with them: devices, shards, and other options that were left open are set.
  const TrainerOptions& options() const { return options_; }
  // With record_steps: the next step is described anew. For callbacks that change what a pass computes.
  void forget_recording() { forgets_recording_ = true; }
  // The reason why steps are not recorded, such as "it waits for data that it has computed". Empty if they are or will
  // be recorded, or if record_steps is off.
  std::string why_not_recorded() const;
  // Why recorded steps on GPUs are not a CUDA graph. Empty if they are, or if none are recorded there.
  std::string why_no_graph() const;
  // The ranks that train.
  Communicator& communicator() const { return **options_.communicator; }
  // Collective. Measures the accuracy, or the metrics of the options, on the test data.
  EpochReport test();
  // The moving average of the weights; null if there is none. AveragedWeights replaces the weights by it.
  WeightAverage* average() { return average_ ? &*average_ : nullptr; }
  Accuracy evaluate() { return test().test; }
  std::vector<MetricResult> measure() { return test().metrics; }

 private:
  struct PendingLoss {
    StepReport report;
    bool recorded = false;  // the update is a part of the recording
    // One entry for each micro-batch: its share of the step, and its mean loss over all ranks, followed by the means of
    // BatchOutputs::log.
    std::vector<std::pair<double, std::vector<Tensor>>> losses;
    Array learned;      // written after the backward pass; defined with several processes
    Tensor stopped;     // the number of processes that were asked to stop
    Tensor loss_scale;  // with f16
  };

  std::pair<DataLoader, EvaluateOptions> test_data() const;
  // Returns the share of each micro-batch in the loss of a step. The shares add up to 1.
  std::vector<double> shares_of(std::span<const Example> step) const;
  double weight_of(const Example& batch) const;
  void run_step(std::span<Example> step);
  void run_micro_batch(Example& batch, std::int64_t samples, double share, bool last);
  // Runs forward and backward; the micro-batch has `share` of the step's loss. Returns the mean loss and the other
  // scalars to report.
  std::vector<Tensor> learn(std::span<const Tensor> parts, double share, bool sync);
  BatchOutputs outputs_of(std::span<const Tensor> parts) const;
  void update();
  // Whether the learning rate is the optimizer's own, which callbacks may change.
  bool keeps_learning_rate() const;
  void schedule_learning_rate();
  void check_test_labels() const;
  void check_test_shapes(const std::vector<Shape>& trained) const;
  void check_labels(const Dataset& data, std::string_view what) const;
  void check_batch_norms();
  Example first_of(const Dataset& data, std::size_t times = 1) const;
  // learn() and update(), recorded and repeated where possible.
  std::vector<Tensor> recorded_step(std::span<const Tensor> parts);
  bool records() const;
  bool on_gpu() const;
  void finish_step(std::int64_t batches);
  void rebalance(std::optional<DataLoader::Iterator>& loop);
  void read_losses(std::size_t leave);
  std::unique_ptr<FolderClaim> claim_save_folder() const;
  void save() { save(options_.save_folder, options_.keep_checkpoints); }
  void save(const std::filesystem::path& folder, int keep);
  void share(CheckpointContents& checkpoint) const;
  void abandon_step();
  std::string last_good_checkpoint() const;
  bool finished() const;
  // Whether the run was asked to stop, and whether train_until() ends, after this step. All ranks agree.
  bool stopping() const { return agreed_stop_ || (ranks().alone() && stop_.load(std::memory_order_relaxed)); }
  bool ends_here() const { return stopping() || (position_.step >= until_ && !finished()); }
  // The number of steps in this many micro-batches.
  std::int64_t steps_of(std::int64_t batches) const {
    return (batches + options_.accumulate - 1) / options_.accumulate;
  }
  Communicator& ranks() const { return communicator(); }
  int rank() const { return ranks().rank(); }
  DataLoaderOptions rows_of_rank(DataLoaderOptions options) const;
  Recipe make_recipe() const;
  void record_fixed_parts();
  // Updates the recipe with the optimizer's options and rate: those at the run's first step count.
  void record_optimizer();
  // Throws if the optimizer's options are not those of the recipe. Rates are not compared.
  void check_optimizer() const;
  void choose_shards();
  void join_ranks();
  void settle_model() const;
  void settle_open_shapes() const;
  void pass(Example batch) const;
  std::shared_ptr<void> keep_random_position() const;
  TrainingResult run();
  void add_observers();
  void start_observers();
  // Call it when the losses of all steps have been read.
  void settle_observers(bool urgent);
  StateDigest state_now() const;

  Module& module_;
  Optimizer& optimizer_;
  TrainerOptions options_;
  Recipe given_recipe_;                            // TrainerOptions::recipe as it was passed
  std::vector<OptimizerOptions> trained_options_;  // of the optimizer's groups, without rates
  std::string trained_groups_;
  std::shared_ptr<const Dataset> test_;
  std::unique_ptr<BatchSplitter> splitter_;  // with several ranks: a DistributedModel
  std::optional<Balancer> balancer_;         // with Balance::automatic
  std::optional<LossScaler> scaler_;         // with f16
  std::optional<WeightAverage> average_;     // with average_decay
  std::unique_ptr<RecordedStep> recorded_;
  bool forgets_recording_ = false;
  std::vector<bool> recorded_trainable_;  // for each parameter: whether recorded_ trains it
  DataLoader loader_;
  TrainingPosition position_;
  std::optional<std::vector<std::string>> log_names_;  // of BatchOutputs::log; known after the first batch
  PendingLoss current_;                                // the step that is being described
  std::deque<PendingLoss> pending_;
  std::unique_ptr<TrainingClock> clock_;
  const std::unique_ptr<Observers> observers_;
  std::pair<std::int64_t, double> last_loss_{};  // of the latest step whose loss was read
  std::int64_t saved_step_ = -1;
  std::filesystem::path resumed_from_;
  std::unique_ptr<BestCheckpoint> best_;  // with watch.save_best
  std::atomic<bool> stop_{false};
  bool agreed_stop_ = false;
  std::int64_t until_ = 0;            // of train_until()
  bool tested_ = false;               // check_test_shapes() and check_labels() have run
  mutable std::int64_t classes_ = 0;  // of the default loss; known after the first batch
  bool dtype_found_ = false;          // a step has computed in options_.dtype
};

}  // namespace lockstep
