#include "lockstep/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/folder_claim.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/optim/left_out.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/train/rate_meter.h"
#include "lockstep/train/training_log.h"
#include "lockstep/train/watch.h"

namespace lockstep {
bool Trainer::finished() const {
  return position_.epoch >= options_.epochs || (options_.max_steps > 0 && position_.step >= options_.max_steps);
}

TrainingResult Trainer::train() {
  if (!options_.communicator) {
    try {
      return run();
    } catch (...) {
      // It may lack a part of the step.
      recorded_ = nullptr;
      throw;
    }
  }
  try {
    return run();
  } catch (const TaskError& error) {
    // Reports a lost rank as the job's failure, not as one of the task that waited for it.
    options_.communicator->abort(error.what());
    try {
      std::rethrow_exception(error.failure().cause);
    } catch (const CommError&) {
      throw;
    } catch (...) {
      throw error;
    }
  } catch (const std::exception& error) {
    // Tells the others, which wait for this rank, why it does not come.
    options_.communicator->abort(error.what());
    throw;
  }
}

// Drops what an exception left of a step.
void Trainer::abandon_step() {
  current_ = {};
  agreed_stop_ = false;
  optimizer_.zero_grad();
  const std::int64_t steps = position_.step - position_.epoch * steps_of(loader_.size());
  position_.batch = std::min(steps * options_.accumulate, loader_.size());
  // A run that begins draws the same dropout masks, whatever ran before in this Runtime.
  const std::shared_ptr<RandomState> random = state_of(options_.devices[0], "trainer").random;
  random->set_step(position_.step == 0 ? 0 : random->step());
}

TrainingResult Trainer::run() {
  record_fixed_parts();
  if (!finished()) check_test_labels();
  // Parts in evaluation mode stay in it: frozen ones, for example.
  if (!module_.training()) module_.train();
  abandon_step();
  const LeftOutGuard left_out(module_);
  TrainingResult result;
  const auto claim = claim_save_folder();
  settle_best();
  open_log();
  while (!finished() && !stopping() && !stops_early(position_.epochs, options_.watch)) {
    loader_.set_epoch(position_.epoch);
    std::int64_t batches = loader_.size();
    loader_.skip_batches(position_.batch);
    double begin = RateMeter::now();
    rate_->start(begin);
    if (balancer_) balancer_->resume();
    std::optional<DataLoader::Iterator> loop(loader_.begin());
    while (*loop != loader_.end()) {
      // The labels of all micro-batches decide how much each counts.
      const std::int64_t size = std::min(options_.accumulate, batches - position_.batch);
      std::vector<Example> step{std::move(**loop)};
      while (std::ssize(step) < size) {
        ++*loop;
        step.push_back(std::move(**loop));
      }
      run_step(step);
      finish_step(batches);
      if (finished() || stopping()) break;
      if (options_.save_every > 0 && position_.step % options_.save_every == 0 && position_.batch < batches) {
        read_losses(0);
        // A run resumed from the checkpoint continues the clock of the epoch.
        const double pause = RateMeter::now();
        rate_->stop(pause);
        position_.seconds += pause - begin;
        save();
        begin = RateMeter::now();
        rate_->start(begin);
      }
      rebalance(loop);
    }
    loop.reset();
    if (balancer_) balancer_->pause();
    read_losses(0);
    const double end = RateMeter::now();
    rate_->stop(end);
    position_.seconds += end - begin;
    // Includes requests to ranks whose shards had no samples.
    if (options_.communicator) {
      agreed_stop_ = options_.communicator->sum_on_host(stop_ ? 1 : 0, "stop requests") > 0 || agreed_stop_;
    }
    if (position_.batch < batches && stopping()) break;
    // An epoch that max_steps cuts short is reported, too, but the position stays inside it.
    EpochReport report = test();
    report.epoch = position_.epoch + 1;
    report.seconds = position_.seconds;
    report.train_loss = position_.samples == 0 ? 0 : position_.loss_sum / static_cast<double>(position_.samples);
    result.epochs.push_back(report);
    if (log_) log_->epoch(report);
    if (on_epoch) on_epoch(report);
    if (position_.batch < batches) break;
    std::vector<EpochRecord> epochs = std::move(position_.epochs);
    epochs.push_back({report.epoch, report.seconds, report.train_loss, report.test.correct, report.test.total});
    for (const MetricResult& m : report.metrics) {
      if (m.table.empty()) epochs.back().metrics.emplace_back(m.name, m.value);
    }
    contenders_.push_back(epochs.back());
    position_ = {.step = position_.step, .epoch = position_.epoch + 1, .epochs = std::move(epochs)};
    const bool best = options_.watch.save_best && best_epoch(contenders_, options_.watch) == position_.epoch;
    // First the save folder: if the run is killed before `best` is written, the resumed run writes it.
    if (!options_.save_folder.empty() &&
        (options_.save_every == 0 || position_.step % options_.save_every == 0 || best)) {
      save();
    }
    if (best) save_best();
  }
  if (!options_.save_folder.empty() && saved_step_ != position_.step) save();
  result.steps = position_.step;
  result.stopped = stopping();
  if (result.stopped) stop_ = false;
  result.lost_best = lost_best_;
  result.stopped_early = !result.stopped && !finished() && stops_early(position_.epochs, options_.watch);
  if (log_) {
    log_->end(result, module_);
    result.log_error = log_->error();
    log_ = nullptr;
  }
  return result;
}

// A run that resumed continues its log.
void Trainer::open_log() {
  log_ = nullptr;
  if (options_.log_file.empty() || rank() != 0) return;
  const TrainerOptions& o = options_;
  log_ = std::make_unique<TrainingLog>(
      o.log_file, position_,
      LoggedRun{.devices = o.devices,
                .shards = o.shards,
                .world_size = o.communicator ? o.communicator->world_size() : 1,
                .backend = std::string(o.communicator ? o.communicator->backend_name() : "host"),
                .module = &module_,
                .recipe = &o.recipe});
}

std::pair<DataLoader, EvaluateOptions> Trainer::test_data() const {
  const std::vector<int>& shares = shares_.devices_of(rank());
  return {DataLoader(test_, rows_of_rank({.batch_size = options_.micro_batch_size(), .seed = options_.seed})),
          {.devices = options_.devices,
           .shards = options_.shards,
           .balance = {shares.begin(), shares.end()},
           .dtype = options_.dtype,
           .distributed = distributed_.get(),
           .forward = options_.forward}};
}

EpochReport Trainer::test() {
  EpochReport report;
  if (!test_) return report;
  // A test that draws random numbers must not move those of the training.
  const std::shared_ptr<RandomState> random = state_of(options_.devices[0], "trainer").random;
  const RandomState::Position position = random->position();
  const auto restore = [random, position](void*) { random->set_position(position); };
  const std::unique_ptr<void, decltype(restore)> guard(this, restore);
  std::optional<AveragedWeights> averaged;
  if (average_) averaged.emplace(*average_);
  auto [loader, options] = test_data();
  if (options_.metrics.empty()) {
    report.test = lockstep::evaluate(module_, loader, options);
    return report;
  }
  report.metrics = lockstep::evaluate(module_, loader, options_.metrics, options);
  const auto accuracy = std::ranges::find(report.metrics, "accuracy", &MetricResult::name);
  if (accuracy != report.metrics.end()) report.test = {std::llround(accuracy->sum), std::llround(accuracy->count)};
  return report;
}

}  // namespace lockstep
