#include "lockstep/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "lockstep/autograd/lift.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/optim/left_out.h"
#include "lockstep/parallel/split.h"

namespace lockstep {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

const char* schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::constant: return "constant";
    case ScheduleKind::step: return "step";
    case ScheduleKind::cosine: return "cosine";
  }
  return "";
}

std::int64_t micro_batch_size(const TrainerOptions& o) {
  check(o.accumulate >= 1 && o.batch_size % o.accumulate == 0,
        "trainer: a batch of {} in {} micro-batches, expected a number that divides it", o.batch_size, o.accumulate);
  return o.batch_size / o.accumulate;
}

// How many of the job's shards are in a process that is asked to stop: known to all processes.
Tensor stop_requests(const Tensor& batch, bool stop) {
  const NoGradGuard no_grad;
  return mix_shards("stop requests", Mix::sum, place_as("stop requests", batch), {batch}, [stop](const Arrays& in) -> Lifted {
    Array flag = ops::empty({1}, DType::f32, in[0].device());
    ops::fill_(flag, stop ? 1 : 0);
    return {flag, nullptr};
  });
}

}  // namespace

Trainer::Trainer(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
                 std::shared_ptr<const Dataset> test, TrainerOptions options)
    : module_(module), optimizer_(optimizer), options_(std::move(options)), test_(std::move(test)),
      loader_(std::move(train), rows_of_rank({.batch_size = micro_batch_size(options_),
                                              .shuffle = options_.shuffle,
                                              .seed = options_.seed})) {
  TrainerOptions& o = options_;
  check(!o.devices.empty(), "trainer: no devices");
  check(o.epochs >= 0 && o.max_steps >= 0 && o.save_every >= 0 && o.shards >= 0 && o.clip_norm >= 0,
        "trainer: epochs {}, steps {}, a checkpoint every {} steps, {} shards, norm {}: expected at least 0", o.epochs,
        o.max_steps, o.save_every, o.shards, o.clip_norm);
  check(loader_.dataset().size() > 0, "trainer: the data set is empty");
  choose_shards();
  o.schedule.base_lr = optimizer.learning_rate();
  o.schedule.total_steps = o.epochs * steps_of(loader_.size());
  if (o.max_steps > 0) o.schedule.total_steps = std::min(o.schedule.total_steps, o.max_steps);
  Recipe recipe = {{"seed", o.seed},
                   {"shards", o.shards},
                   {"batch_size", o.batch_size},
                   {"accumulate", o.accumulate},
                   {"examples", loader_.dataset().size()},
                   {"shuffle", o.shuffle},
                   {"dtype", name(o.dtype)},
                   {"learning_rate", o.schedule.base_lr},
                   {"schedule", schedule_name(o.schedule.kind)},
                   {"warmup", o.schedule.warmup},
                   {"clip_norm", o.clip_norm},
                   {"label_smoothing", o.label_smoothing}};
  const DeviceState& device = state_of(o.devices[0], "trainer");
  if (device.backend->threads_decide_bits(o.dtype)) recipe.set("threads_per_shard", device.contexts.front()->threads);
  // Where a schedule depends on the length of the run, so do the bits.
  if (o.schedule.kind != ScheduleKind::constant) recipe.set("scheduled_steps", o.schedule.total_steps);
  if (o.schedule.kind == ScheduleKind::step) {
    recipe.set("schedule_step_size", o.schedule.step_size);
    recipe.set("schedule_gamma", o.schedule.gamma);
  }
  if (o.gradients != DType::f32) recipe.set("gradients", name(o.gradients));
  if (o.dtype == DType::f16) {
    recipe.set("loss_scale", o.loss_scaling.initial_scale);
    recipe.set("loss_scale_interval", o.loss_scaling.growth_interval);
    scaler_.emplace(o.devices, o.loss_scaling);
  }
  const KernelSettings& kernels = state_of(o.devices[0], "trainer").kernels;
  if (kernels.reference) recipe.set("kernels", "reference");
  if (kernels.direct_conv) recipe.set("direct_conv", true);
  if (kernels.tf32) recipe.set("tf32", true);
  // The file grows while algorithms are timed, so its path names the choices: one file gives the same bits in all runs.
  if (const auto& file = kernels.cuda_algorithms; !file.empty()) {
    recipe.set("cuda_algorithms", std::filesystem::absolute(file).lexically_normal().string());
  }
  recipe.update(o.recipe);
  o.recipe = std::move(recipe);
  record_fixed_parts();
  if (o.communicator) {
    join_ranks();
  } else {
    for (const Parameter& p : module_.parameters()) p.gradient_tree().set_dtype(o.gradients);
  }
  share_shards();
}

void Trainer::record_fixed_parts() {
  std::string frozen, evaluating;
  const auto add = [](std::string& names, const std::string& name) { names += (names.empty() ? "" : ",") + name; };
  for (const auto& [name, p] : module_.named_parameters()) {
    if (!p.trainable() || !p.optimized()) add(frozen, name);
  }
  // run() puts all of a model in evaluation mode into training mode.
  for (const auto& [name, module] : module_.named_modules()) {
    if (module_.training() && !module->training()) add(evaluating, name);
  }
  const auto record = [&](const char* name, const std::string& names) {
    options_.recipe.erase(name);
    if (!names.empty()) options_.recipe.set(name, names);
  };
  record("frozen", frozen);
  record("evaluation_mode", evaluating);
}

void Trainer::choose_shards() {
  TrainerOptions& o = options_;
  std::int64_t devices = std::ssize(o.devices);
  if (o.communicator) devices = o.communicator->sum_on_host(devices, "number of devices");
  const std::int64_t batch = micro_batch_size(o);
  if (o.shards == 0) {
    o.shards = on_gpu() ? static_cast<int>(devices) : default_shards(batch);
  }
  check(o.shards >= devices, "trainer: {} shards of a batch of {} for {} devices, expected at least one for each: set TrainerOptions::shards",
        o.shards, batch, devices);
}

void Trainer::share_shards() {
  const TrainerOptions& o = options_;
  if (distributed_) {
    shares_ = distributed_->shares();
  } else {
    const int devices = static_cast<int>(o.devices.size());
    shares_ = JobShares(o.shards, {&devices, 1}, o.balance.weights);
  }
  // With one shard for each device there is nothing to move.
  const bool movable = o.shards > std::ssize(shares_.all()) && shares_.all().size() > 1;
  if (o.balance.automatic && movable) balancer_.emplace(o.devices, shares_, o.communicator, o.balancer);
}

void Trainer::join_ranks() {
  const TrainerOptions& o = options_;
  try {
    const RandomKey key = random_key(o.seed, {});
    const std::int64_t index = 0;
    settle_shapes(module_, loader_.dataset().batch({&index, 1}, {&key, 1}).at(0), o.devices[0]);
  } catch (const std::exception& error) {
    o.communicator->abort(error.what());
    throw;
  }
  std::string recipe;
  for (const auto& [name, value] : o.recipe) recipe += fmt::format("{} {}\n", name, value.json());
  // What does not decide the bits, but has to be done by all together.
  recipe += fmt::format("epochs {}\nmax_steps {}\ncheckpoints {}\nsave_every {}\ntest examples {}\n", o.epochs, o.max_steps,
                        !o.save_folder.empty(), o.save_every, test_ ? test_->size() : 0);
  for (const Metric& metric : o.metrics) recipe += fmt::format("metric {}\n", metric.name);
  if (o.balance.automatic) recipe += fmt::format("balance auto, every {} steps\n", o.balancer.every);
  distributed_ = std::make_unique<DistributedDataParallel>(module_, o.devices, o.communicator,
                                                           DistributedOptions{.shards = o.shards,
                                                                              .balance = o.balance.weights,
                                                                              .gradients = o.gradients,
                                                                              .recipe = recipe});
}

// The rows are asked for when the loader runs, long after the ranks have met.
DataLoaderOptions Trainer::rows_of_rank(DataLoaderOptions options) const {
  if (!options_.devices.empty()) options.pin_for = options_.devices[0];
  if (options_.communicator) options.rows = [this](std::int64_t n) { return distributed_->rows_of(n); };
  return options;
}

bool Trainer::finished() const {
  return position_.epoch >= options_.epochs || (options_.max_steps > 0 && position_.step >= options_.max_steps);
}

TrainingResult Trainer::train() {
  if (!options_.communicator) return run();
  try {
    return run();
  } catch (const TaskError& error) {
    // A lost rank is the job's news, not that of the task which waited for it.
    options_.communicator->abort(error.what());
    try {
      std::rethrow_exception(error.failure().cause);
    } catch (const CommError&) {
      throw;
    } catch (...) {
      throw error;
    }
  } catch (const std::exception& error) {
    // The others wait for this rank: they are told why it does not come.
    options_.communicator->abort(error.what());
    throw;
  }
}

TrainingResult Trainer::run() {
  record_fixed_parts();
  // Parts in evaluation mode stay in it: frozen ones, for example.
  if (!module_.training()) module_.train();
  // A run that begins draws the same dropout masks, whatever ran before in this Runtime.
  if (position_.step == 0) state_of(options_.devices[0], "trainer").random->set_step(0);
  const LeftOutGuard left_out(module_);
  TrainingResult result;
  const auto claim = claim_save_folder();
  while (!finished() && !stopping()) {
    loader_.set_epoch(position_.epoch);
    std::int64_t batches = loader_.size();
    loader_.skip_batches(position_.batch);
    double begin = now();
    rate_.start(begin);
    if (balancer_) balancer_->resume();
    std::optional<DataLoader::Iterator> loop(loader_.begin());
    while (*loop != loader_.end()) {
      run_micro_batch(**loop, batches);
      if (position_.batch % options_.accumulate != 0 && position_.batch < batches) {
        ++*loop;
        continue;
      }
      finish_step(batches);
      if (finished() || stopping()) break;
      if (options_.save_every > 0 && position_.step % options_.save_every == 0 && position_.batch < batches) {
        read_losses(0);
        // The clock of the epoch goes on in the checkpoint.
        const double pause = now();
        rate_.stop(pause);
        position_.seconds += pause - begin;
        save();
        begin = now();
        rate_.start(begin);
      }
      rebalance(loop);
    }
    loop.reset();
    if (balancer_) balancer_->pause();
    read_losses(0);
    const double end = now();
    rate_.stop(end);
    position_.seconds += end - begin;
    // A rank whose shards had no samples has not been heard yet.
    if (options_.communicator) {
      agreed_stop_ = options_.communicator->sum_on_host(stop_ ? 1 : 0, "stop requests") > 0 || agreed_stop_;
    }
    if (position_.batch < batches && stopping()) break;
    // An epoch that max_steps cuts short is reported, too, but the position stays inside it.
    EpochReport report{position_.epoch + 1, position_.seconds,
                       position_.samples == 0 ? 0 : position_.loss_sum / static_cast<double>(position_.samples)};
    if (options_.metrics.empty()) {
      report.test = evaluate();
    } else {
      report.metrics = measure();
      const auto accuracy = std::ranges::find(report.metrics, "accuracy", &MetricResult::name);
      if (accuracy != report.metrics.end()) {
        report.test = {std::llround(accuracy->sum), std::llround(accuracy->count)};
      }
    }
    result.epochs.push_back(report);
    if (on_epoch) on_epoch(report);
    if (position_.batch < batches) break;
    std::vector<EpochRecord> epochs = std::move(position_.epochs);
    epochs.push_back({report.epoch, report.seconds, report.train_loss, report.test.correct, report.test.total});
    position_ = {.step = position_.step, .epoch = position_.epoch + 1, .epochs = std::move(epochs)};
    if (!options_.save_folder.empty() &&
        (options_.save_every == 0 || position_.step % options_.save_every == 0)) save();
  }
  if (!options_.save_folder.empty() && saved_step_ != position_.step) save();
  result.steps = position_.step;
  result.stopped = stopping();
  return result;
}

void Trainer::run_micro_batch(Example& batch, std::int64_t batches) {
  const TrainerOptions& o = options_;
  check(batch.size() == 2, "trainer: examples have {} parts, expected inputs and labels", batch.size());
  std::int64_t samples = loader_.batch_examples(position_.batch);
  Tensor x, labels;
  if (distributed_) {
    auto parts = distributed_->split(batch, samples);
    x = std::move(parts[0]);
    labels = std::move(parts[1]);
  } else {
    const std::vector<int>& shares = shares_.devices_of(0);
    const SplitOptions split{.shards = o.shards, .balance = {shares.begin(), shares.end()}};
    x = split_and_load(batch[0], o.devices, split);
    labels = split_and_load(batch[1], o.devices, split);
  }
  std::int64_t first = position_.batch - position_.batch % o.accumulate;
  std::int64_t last = std::min(first + o.accumulate, batches) - 1;
  std::int64_t step_samples = 0;
  for (std::int64_t b = first; b <= last; ++b) step_samples += loader_.batch_examples(b);
  double share = static_cast<double>(samples) / static_cast<double>(step_samples);
  // Of the step before its update, and no part of a recording.
  if (scaler_ && !current_.loss_scale.defined()) current_.loss_scale = scaler_->current();
  const Tensor loss = records() ? recorded_step(x, labels) : learn(x, labels, share, position_.batch >= last);
  current_.losses.emplace_back(share, loss.detach());
  if (distributed_) current_.stopped = stop_requests(labels, stop_);
  current_.report.samples = step_samples;
  ++position_.batch;
}

// What ranks exchange is not the same task each time, and a step of micro-batches is several calls.
bool Trainer::records() const {
  return options_.record_steps && !options_.communicator && options_.accumulate == 1 && !(balancer_ && on_gpu());
}

bool Trainer::on_gpu() const {
  return std::ranges::any_of(options_.devices, [](Device d) { return d.kind() == DeviceKind::cuda; });
}

std::string Trainer::why_not_recorded() const {
  if (!options_.record_steps) return "";
  if (options_.communicator) return "it is one of several processes";
  if (options_.accumulate > 1) return "it has several micro-batches";
  if (!records()) return "the speed of each GPU is measured, and a CUDA graph has one time for all";
  return recorded_ ? recorded_->why_not() : "";
}

std::string Trainer::why_no_graph() const {
  return on_gpu() && recorded_ && recorded_->recorded() ? recorded_->why_no_graph() : "";
}

Tensor Trainer::learn(const Tensor& x, const Tensor& labels, double share, bool sync) {
  // Numbers of words and the like stay whole.
  const Tensor outputs = module_(is_floating(x.dtype()) ? x.to(options_.dtype) : x);
  const Tensor loss = options_.loss ? options_.loss(outputs, labels)
                                    : cross_entropy(outputs, labels, {.label_smoothing = options_.label_smoothing});
  loss.backward({.share = share, .scales = scaler_ ? scaler_->scales() : std::span<const Array>(), .sync = sync});
  return loss;
}

void Trainer::update() {
  if (scaler_) {
    optimizer_.unscale(*scaler_, options_.clip_norm);
  } else if (options_.clip_norm > 0) {
    optimizer_.clip_grad_norm(options_.clip_norm);
  }
  optimizer_.step();
}

Tensor Trainer::recorded_step(const Tensor& x, const Tensor& labels) {
  std::vector<bool> trainable;
  for (const Parameter& p : module_.parameters()) trainable.push_back(p.trainable());
  // A recording goes on to train what was trained when it was made.
  if (!recorded_ || trainable != recorded_trainable_) {
    recorded_trainable_ = std::move(trainable);
    recorded_ = std::make_unique<RecordedStep>([this](std::span<const Tensor> inputs) {
      const Tensor loss = learn(inputs[0], inputs[1], 1, true);
      update();
      return std::vector<Tensor>{loss};
    });
  }
  optimizer_.set_learning_rate(scheduled_lr(options_.schedule, position_.step));
  return recorded_->run(std::array{x, labels})[0];
}

void Trainer::finish_step(std::int64_t batches) {
  const TrainerOptions& o = options_;
  if (!records()) {
    optimizer_.set_learning_rate(scheduled_lr(o.schedule, position_.step));
    update();
  }
  ++position_.step;
  if (on_update) on_update(position_.step);
  StepReport& report = current_.report;
  report.step = position_.step;
  report.epoch = position_.epoch + 1;
  report.batch = steps_of(position_.batch);
  report.batches = steps_of(batches);
  report.shares = shares_.all();
  pending_.push_back(std::exchange(current_, {}));
  // A few steps stay in flight, so that the devices never wait for the host.
  constexpr std::size_t kInFlight = 2;
  read_losses(kInFlight);
}

// Between two steps; collective. `loop` stands on the batch that has been used, and goes on.
void Trainer::rebalance(std::optional<DataLoader::Iterator>& loop) {
  if (!balancer_ || !balancer_->step()) {
    ++*loop;
    return;
  }
  shares_ = balancer_->shares();
  // Its tasks are those of other shares. It is described anew.
  recorded_ = nullptr;
  if (!distributed_) {
    ++*loop;
    return;
  }
  // Batches that were loaded ahead have other rows.
  loop.reset();
  distributed_->set_shares(shares_);
  loader_.skip_batches(position_.batch);
  loop.emplace(loader_.begin());
}

void Trainer::read_losses(std::size_t leave) {
  while (pending_.size() > leave) {
    PendingLoss next = std::move(pending_.front());
    pending_.pop_front();
    StepReport& report = next.report;
    report.loss = 0;
    for (auto& [share, loss] : next.losses) report.loss += share * (loss.dtype() == DType::f64 ? loss.item<double>() : double{loss.item<float>()});
    if (next.stopped.defined()) agreed_stop_ = agreed_stop_ || next.stopped.item<float>() != 0;
    if (!std::isfinite(report.loss)) {
      pending_.clear();
      fail("the loss is {} at step {}{}", std::isnan(report.loss) ? std::numeric_limits<double>::quiet_NaN() : report.loss, report.step,
           last_good_checkpoint());
    }
    if (next.loss_scale.defined()) {
      report.loss_scale = next.loss_scale.item<float>();
      // As small as this no overflow is to blame.
      check(*report.loss_scale >= 0x1p-20,
            "the gradients are not finite at step {}, however small the loss scale", report.step);
    }
    report.images_per_second = rate_.add(now(), report.samples);
    report.seconds = rate_.seconds();
    position_.loss_sum += report.loss * static_cast<double>(report.samples);
    position_.samples += report.samples;
    if (on_step) on_step(report);
  }
}

std::pair<DataLoader, EvaluateOptions> Trainer::test_data() const {
  const std::vector<int>& shares = shares_.devices_of(rank());
  return {DataLoader(test_, rows_of_rank({.batch_size = micro_batch_size(options_)})),
          {.devices = options_.devices,
           .shards = options_.shards,
           .balance = {shares.begin(), shares.end()},
           .dtype = options_.dtype,
           .distributed = distributed_.get()}};
}

Accuracy Trainer::evaluate() {
  if (!test_) return {};
  auto [loader, options] = test_data();
  return lockstep::evaluate(module_, loader, options);
}

std::vector<MetricResult> Trainer::measure() {
  if (!test_) return {};
  auto [loader, options] = test_data();
  return lockstep::evaluate(module_, loader, options_.metrics, options);
}

}  // namespace lockstep
