// Sets up a Trainer: its recipe, the shards, and the ranks that it joins.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/autograd/gradient_tree.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/backend/backend.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/train/rate_meter.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_log.h"

namespace lockstep {
namespace {

const char* schedule_name(const ScheduleOptions& schedule) {
  if (schedule.lr_lambda) return "lambda";
  switch (schedule.kind) {
    case ScheduleKind::constant: return "constant";
    case ScheduleKind::step: return "step";
    case ScheduleKind::cosine: return "cosine";
  }
  return "";
}

// The names of the values that each epoch will have. Without test data, only the training loss.
void check_watched_metric(const TrainerOptions& o, bool has_tests) {
  std::vector<std::string> names{"train_loss"};
  if (has_tests && o.metrics.empty()) names.push_back("accuracy");
  if (has_tests) {
    for (const Metric& m : o.metrics) names.push_back(m.name);
  }
  check(o.watch.metric.empty() || std::ranges::find(names, o.watch.metric) != names.end(),
        "trainer: watches {}, but each epoch has only {}", o.watch.metric, fmt::join(names, ", "));
}

bool smallest_is_best(const TrainerOptions& o) {
  if (o.watch.smallest) return *o.watch.smallest;
  const auto metric = std::ranges::find(o.metrics, o.watch.metric, &Metric::name);
  return metric != o.metrics.end() ? metric->smaller_is_better : o.watch.metric == "train_loss";
}

// An optimizer of another model would train nothing, and ranks exchange only the gradients of this model.
void check_owned(const Optimizer& optimizer, const Module& module) {
  const std::vector<Parameter> own = module.parameters();
  const std::vector<Parameter> given = optimizer.parameters();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (std::ranges::find(own, given[i]) != own.end()) continue;
    const std::string& name = given[i].name();
    fail(
        "trainer: the optimizer has {}, which is not a parameter of the model: expected an optimizer of the model's "
        "parameters()",
        name.empty() ? fmt::format("parameter {}", i) : fmt::format("another parameter {}", name));
  }
}

// With the seed that it follows if none is set.
TrainerOptions seeded(TrainerOptions o) {
  if (!o.seed && !o.devices.empty()) o.seed = state_of(o.devices[0], "trainer").random->seed();
  return o;
}

}  // namespace

std::int64_t TrainerOptions::micro_batch_size() const {
  check(accumulate >= 1 && batch_size % accumulate == 0,
        "trainer: a batch of {} in {} micro-batches, expected a number that divides the batch size", batch_size,
        accumulate);
  return batch_size / accumulate;
}

Trainer::Trainer(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
                 std::shared_ptr<const Dataset> test, TrainerOptions options)
    : module_(module), optimizer_(optimizer), options_(seeded(std::move(options))), test_(std::move(test)),
      loader_(std::move(train),
              rows_of_rank(
                  {.batch_size = options_.micro_batch_size(), .shuffle = options_.shuffle, .seed = options_.seed})),
      rate_(std::make_unique<RateMeter>()) {
  TrainerOptions& o = options_;
  check(!o.devices.empty(), "trainer: no devices");
  check_owned(optimizer_, module_);
  check(o.epochs >= 0 && o.max_steps >= 0 && o.save_every >= 0 && o.shards >= 0 && o.clip_norm >= 0,
        "trainer: epochs {}, steps {}, a checkpoint every {} steps, {} shards, norm {}: expected at least 0", o.epochs,
        o.max_steps, o.save_every, o.shards, o.clip_norm);
  check(loader_.dataset().size() > 0, "trainer: the data set is empty");
  check(o.keep_checkpoints >= 1 && o.watch.patience >= 0 && o.watch.min_delta >= 0,
        "trainer: keeps {} checkpoints, patience {}, min_delta {}: expected at least 1, 0, and 0", o.keep_checkpoints,
        o.watch.patience, o.watch.min_delta);
  check(!o.watch.save_best || (!o.watch.metric.empty() && !o.save_folder.empty()),
        "trainer: watch.save_best is set, expected watch.metric and save_folder to be set, too");
  check_watched_metric(o, test_ != nullptr);
  o.watch.smallest = smallest_is_best(o);
  check(!o.forward || (!o.loss && o.label_smoothing == 0),
        "trainer: `forward` computes the loss, expected no `loss` and no label_smoothing");
  choose_shards();
  o.schedule.total_steps = o.epochs * steps_of(loader_.size());
  if (o.max_steps > 0) o.schedule.total_steps = std::min(o.schedule.total_steps, o.max_steps);
  if (o.schedule.base_lr) optimizer_.set_learning_rate(*o.schedule.base_lr);
  o.schedule.base_lr = optimizer_.base_learning_rate();
  scheduled_lr(o.schedule, 0);  // checks the schedule
  if (o.average_decay != 0) average_.emplace(module_, o.average_decay);
  if (o.dtype == DType::f16) scaler_.emplace(o.devices, o.loss_scaling);
  o.recipe = make_recipe();
  record_fixed_parts();
  if (o.communicator) {
    join_ranks();
  } else {
    for (const Parameter& p : module_.parameters()) p.gradient_tree().set_dtype(o.gradients);
  }
  share_shards();
}

Trainer::~Trainer() = default;

// Without other metrics, tests measure the accuracy: labels of another type would fail only after an epoch.
void Trainer::check_test_labels() const {
  if (!test_ || test_->size() == 0 || !options_.metrics.empty() || options_.forward) return;
  const RandomKey key = random_key(*options_.seed, {});
  const std::int64_t index = 0;
  const Example example = test_->batch({&index, 1}, {&key, 1});
  check(example.size() == 2,
        "trainer: examples of the test data have {} parts, expected inputs and labels, or TrainerOptions::forward",
        example.size());
  check(example[1].dtype() == DType::i64,
        "trainer: labels of the test data are {}, expected i64 for the accuracy, or other TrainerOptions::metrics",
        example[1].describe());
}

// All settings that decide the bits, and those of the options' recipe.
Recipe Trainer::make_recipe() const {
  const TrainerOptions& o = options_;
  Recipe recipe = {{"seed", *o.seed},
                   {"shards", o.shards},
                   {"batch_size", o.batch_size},
                   {"accumulate", o.accumulate},
                   {"examples", loader_.dataset().size()},
                   {"shuffle", o.shuffle},
                   {"dtype", name(o.dtype)},
                   {"learning_rate", *o.schedule.base_lr},
                   {"schedule", schedule_name(o.schedule)},
                   {"warmup", o.schedule.warmup},
                   {"clip_norm", o.clip_norm},
                   {"label_smoothing", o.label_smoothing}};
  const DeviceState& device = state_of(o.devices[0], "trainer");
  if (device.backend->threads_decide_bits(o.dtype)) recipe.set("threads_per_shard", device.contexts.front()->threads);
  if (const std::uint64_t seed = device.random->seed(); seed != *o.seed) recipe.set("random_seed", seed);
  // The names of the tool's recipes.
  const Optimizer::Rule rule = optimizer_.rule();
  recipe.set("optimizer", rule.name);
  for (const auto& [name, value] : rule.options) recipe.set(name, value);
  if (const std::string groups = optimizer_.describe_groups(); !groups.empty()) recipe.set("parameter_groups", groups);
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
  }
  if (o.average_decay != 0) recipe.set("average_decay", o.average_decay);
  const KernelSettings& kernels = state_of(o.devices[0], "trainer").kernels;
  if (kernels.reference) recipe.set("kernels", "reference");
  if (kernels.direct_conv) recipe.set("direct_conv", true);
  if (kernels.tf32) recipe.set("tf32", true);
  // The file grows while algorithms are timed, so its path names the choices: one file gives the same bits in all runs.
  if (const auto& file = kernels.cuda_algorithms; !file.empty()) {
    recipe.set("cuda_algorithms", std::filesystem::absolute(file).lexically_normal().string());
  }
  recipe.update(o.recipe);
  return recipe;
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
  const std::int64_t batch = o.micro_batch_size();
  if (o.shards == 0) {
    o.shards = on_gpu() ? static_cast<int>(devices) : default_shards(batch);
  }
  check(
      o.shards >= devices,
      "trainer: {} shard{} of a batch of {} for {} devices, expected at least one for each: set TrainerOptions::shards",
      o.shards, o.shards == 1 ? "" : "s", batch, devices);
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
    const RandomKey key = random_key(*o.seed, {});
    const std::int64_t index = 0;
    Example example = loader_.dataset().batch({&index, 1}, {&key, 1});
    if (o.forward) {
      const NoGradGuard no_grad;
      const EvalGuard mode(module_);
      for (Tensor& part : example) part = part.to(o.devices[0]);
      o.forward(example);
    } else {
      settle_shapes(module_, example.at(0), o.devices[0]);
    }
  } catch (const std::exception& error) {
    o.communicator->abort(error.what());
    throw;
  }
  std::string recipe;
  for (const auto& [name, value] : o.recipe) recipe += fmt::format("{} {}\n", name, value.json());
  // These options do not decide the bits, but all ranks must agree on them.
  recipe += fmt::format("epochs {}\nmax_steps {}\ncheckpoints {}\nsave_every {}\ntest examples {}\n", o.epochs,
                        o.max_steps, !o.save_folder.empty(), o.save_every, test_ ? test_->size() : 0);
  for (const Metric& metric : o.metrics) recipe += fmt::format("metric {}\n", metric.name);
  if (!o.watch.metric.empty()) {
    recipe += fmt::format("watch {}, smallest {}, min_delta {}, patience {}, save_best {}\n", o.watch.metric,
                          *o.watch.smallest, o.watch.min_delta, o.watch.patience, o.watch.save_best);
  }
  if (o.balance.automatic) recipe += fmt::format("balance auto, every {} steps\n", o.balancer.every);
  distributed_ = std::make_unique<DistributedModel>(
      module_, o.devices, o.communicator,
      DistributedOptions{.shards = o.shards, .balance = o.balance.weights, .gradients = o.gradients, .recipe = recipe});
}

// The loader asks for the rows when it runs, long after the ranks have met.
DataLoaderOptions Trainer::rows_of_rank(DataLoaderOptions options) const {
  if (!options_.devices.empty()) options.pin_for = options_.devices[0];
  if (options_.communicator) options.rows = [this](std::int64_t n) { return distributed_->rows_of(n); };
  return options;
}

}  // namespace lockstep
