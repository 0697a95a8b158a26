#include "lockstep/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/backend/backend.h"
#include "lockstep/base/count_of.h"
#include "lockstep/base/error.h"
#include "lockstep/base/option_error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/base/tree.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/folder_claim.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/module_tree.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/parameter_change.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/optim/left_out.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/job.h"
#include "lockstep/parallel/split.h"
#include "lockstep/parallel/stop_votes.h"
#include "lockstep/receipt/state_digest.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/train/best_checkpoint.h"
#include "lockstep/train/observers.h"
#include "lockstep/train/receipt_observer.h"
#include "lockstep/train/step_watch.h"
#include "lockstep/train/training_board.h"
#include "lockstep/train/training_clock.h"
#include "lockstep/train/training_log.h"
#include "lockstep/train/watch.h"

namespace lockstep {
namespace {

std::vector<OptimizerOptions> options_without_rates(const Optimizer& optimizer) {
  std::vector<OptimizerOptions> all;
  for (std::size_t group = 0; group < optimizer.group_count(); ++group) {
    all.push_back(optimizer.options(group));
    std::erase_if(all.back(), [](const auto& option) { return option.first == "lr"; });
  }
  return all;
}

const char* schedule_name(const ScheduleOptions& schedule) {
  if (schedule.lr_lambda) return "lambda";
  switch (schedule.kind) {
    case ScheduleKind::constant: return "constant";
    case ScheduleKind::step: return "step";
    case ScheduleKind::cosine: return "cosine";
    case ScheduleKind::linear: return "linear";
    case ScheduleKind::multi_step: return "multi_step";
    case ScheduleKind::exponential: return "exponential";
    case ScheduleKind::cosine_restarts: return "cosine_restarts";
    case ScheduleKind::one_cycle: return "one_cycle";
  }
  return "";
}

// Records what decides the rates, except "learning_rate", "schedule", and "warmup", which every recipe has.
void record_schedule(Recipe& recipe, const ScheduleOptions& s) {
  const bool steps = s.kind == ScheduleKind::step,
             decays = steps || s.kind == ScheduleKind::multi_step || s.kind == ScheduleKind::exponential;
  const bool endless = s.kind == ScheduleKind::constant || s.kind == ScheduleKind::multi_step ||
                       s.kind == ScheduleKind::exponential || s.kind == ScheduleKind::cosine_restarts;
  // If a schedule depends on the length of the run, so do the bits.
  if (!endless) recipe.set("scheduled_steps", s.total_steps);
  if (steps) recipe.set("schedule_step_size", s.step_size);
  if (decays) recipe.set("schedule_gamma", s.gamma);
  if (s.kind == ScheduleKind::multi_step) recipe.set("milestones", fmt::format("{}", fmt::join(s.milestones, ",")));
  if (s.min_lr != 0) recipe.set("min_lr", s.min_lr);
  if (s.kind == ScheduleKind::cosine_restarts) {
    recipe.set("restart_steps", s.restart_steps);
    recipe.set("restart_factor", s.restart_factor);
  }
  if (s.kind == ScheduleKind::one_cycle) {
    recipe.set("pct_start", s.pct_start);
    recipe.set("div_factor", s.div_factor);
    recipe.set("final_div_factor", s.final_div_factor);
  }
}

// Checks watch.metric against the names of the values of each epoch: without test data, only the training loss.
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

// An option that the other options make useless is an error.
void check_options_count(const TrainerOptions& o) {
  const TrainerOptions plain;
  const auto needs = [](bool counts, std::string_view option, const auto& found, const auto& left,
                        std::string_view other) {
    check(counts || found == left, "trainer: {} is {} without {}, expected that, too, or {}", option, found, other,
          left);
  };
  const bool saves = !o.save_folder.empty(), watches = !o.watch.metric.empty(), scales = o.dtype == DType::f16,
             balances = o.split.balance.automatic;
  needs(saves, "save_every", o.save_every, plain.save_every, "save_folder");
  needs(saves, "keep_checkpoints", o.keep_checkpoints, plain.keep_checkpoints, "save_folder");
  needs(watches, "watch.patience", o.watch.patience, plain.watch.patience, "watch.metric");
  needs(watches, "watch.min_delta", o.watch.min_delta, plain.watch.min_delta, "watch.metric");
  check(watches || !o.watch.smallest, "trainer: watch.smallest is set without watch.metric, expected both or none");
  needs(!o.tensorboard.folder.empty(), "tensorboard.histogram_every", o.tensorboard.histogram_every,
        plain.tensorboard.histogram_every, "tensorboard.folder");
  needs(!o.receipt.file.empty(), "receipt.every", o.receipt.every, plain.receipt.every, "receipt.file");
  needs(scales, "loss_scaling.initial_scale", o.loss_scaling.initial_scale, plain.loss_scaling.initial_scale,
        "dtype f16");
  needs(scales, "loss_scaling.growth_interval", o.loss_scaling.growth_interval, plain.loss_scaling.growth_interval,
        "dtype f16");
  needs(balances, "balancer.every", o.balancer.every, plain.balancer.every, "split.balance.automatic");
  check(balances || !o.balancer.seconds_per_shard,
        "trainer: balancer.seconds_per_shard is set without split.balance.automatic, expected both or none");
  check(!o.loss || o.label_smoothing == 0,
        "trainer: label_smoothing is {} beside `loss`, which replaces the loss that it smooths: expected `loss` to "
        "smooth the labels, as cross_entropy() does, and 0",
        o.label_smoothing);
}

// Rejects parameters of another model: they would not be trained, and ranks exchange only this model's gradients.
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

// Fills in the devices of the model, the ranks of the Job, and the seed, where the options leave them open. A Trainer
// that joins no ranks gets a communicator of its own.
TrainerOptions completed(TrainerOptions o, Module& module) {
  if (o.devices.empty()) {
    o.devices = module.devices();
  } else {
    module.expect_on(o.devices, "trainer");
  }
  if (!o.seed) o.seed = state_of(o.devices[0], "trainer").random()->seed();
  if (!o.communicator) o.communicator = find_job(o.devices);
  if (!*o.communicator) o.communicator = std::make_shared<Communicator>(o.devices);
  return o;
}

// Returns "default" if the model has the default values of the first model under the recipe's seed, "default 4" if 4
// parameters got default values before it, and "default 4 of seed 7" under another seed. Empty: the model was
// initialized or loaded.
std::string default_init(const Module& module, std::uint64_t seed) {
  std::vector<DefaultModel::Start> starts;
  for (const auto& [name, p] : module.named_parameters()) {
    const auto start = ParameterChange::default_start(p);
    if (start && std::ranges::find(starts, *start) == starts.end()) starts.push_back(*start);
  }
  if (starts.empty()) return "";
  if (starts == std::vector{DefaultModel::Start{.seed = seed}}) return "default";
  std::string text;
  for (const auto& start : starts) {
    text += fmt::format("{}{}", text.empty() ? "default " : ",", start.number);
    if (start.seed != seed) text += fmt::format(" of seed {}", start.seed);
  }
  return text;
}

// Identifies a sampler, its seed, and its weights by their effect: the orders of two epochs.
std::string hash_of_orders(const Sampler& sampler, std::uint64_t seed) {
  Sha256 hash;
  for (const std::int64_t epoch : {0, 1}) {
    const std::vector<std::int64_t> order = sampler.order_for(seed, epoch);
    hash.update(std::as_bytes(std::span(order)));
  }
  return hash.hex().substr(0, 12);
}

// Another sampler's order without the batch at the end that is not full.
class FullBatches : public Sampler {
 public:
  FullBatches(std::shared_ptr<const Sampler> all, std::int64_t batch_size)
      : all_(std::move(all)), batch_size_(batch_size) {}
  std::vector<std::int64_t> order(std::int64_t epoch) const override {
    std::vector<std::int64_t> order = all_->order(epoch);
    order.resize(order.size() - order.size() % static_cast<std::size_t>(batch_size_));
    return order;
  }

 private:
  std::shared_ptr<const Sampler> all_;
  std::int64_t batch_size_;
};

// Returns null if the loader's own sampler does. The result uses the loader's seed.
std::shared_ptr<const Sampler> sampler_of(const TrainerOptions& o, const Dataset* train) {
  if (!o.drop_last || !train) return o.sampler;
  std::shared_ptr<const Sampler> all = o.sampler;
  if (!all && o.shuffle) all = std::make_shared<RandomSampler>(train->size());
  if (!all) all = std::make_shared<SequentialSampler>(train->size());
  return std::make_shared<FullBatches>(std::move(all), o.batch_size);
}

std::vector<Shape> shapes_of_rows(const Example& batch) {
  std::vector<Shape> shapes;
  for (const Tensor& part : batch) {
    std::vector<std::int64_t> row(part.shape().begin(), part.shape().end());
    if (!row.empty()) row.erase(row.begin());
    shapes.emplace_back(row);
  }
  return shapes;
}

// Sums the terms of a loss, and puts them into the log.
void add_loss_terms(BatchOutputs& found) {
  if (found.losses.empty()) return;
  check(!found.loss.defined(), "trainer: TrainerOptions::forward returned `loss` and `losses`, expected one of them");
  std::vector<std::pair<std::string, Tensor>> log;
  for (const auto& [name, value, weight] : found.losses) {
    check(value.defined(), "trainer: `losses` has no value for \"{}\"", name);
    const Tensor term = weight == 1 ? value : weight * value;
    found.loss = found.loss.defined() ? found.loss + term : term;
    log.emplace_back(name, value);
  }
  found.log.insert(found.log.begin(), log.begin(), log.end());
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
    : module_(module), optimizer_(optimizer), options_(completed(std::move(options), module)), test_(std::move(test)),
      loader_(train, rows_of_rank({.batch_size = options_.micro_batch_size(),
                                   .shuffle = options_.shuffle && !options_.sampler && !options_.drop_last,
                                   .sampler = sampler_of(options_, train.get()),
                                   .seed = options_.seed,
                                   .batch_transform = options_.batch_transform})),
      observers_(std::make_unique<Observers>()) {
  TrainerOptions& o = options_;
  check_owned(optimizer_, module_);
  check(o.epochs >= 0 && o.max_steps >= 0 && o.save_every >= 0 && o.split.shards >= 0 && o.clip_norm >= 0,
        "trainer: epochs {}, steps {}, a checkpoint every {} steps, {} shards, norm {}: expected at least 0", o.epochs,
        o.max_steps, o.save_every, o.split.shards, o.clip_norm);
  check(loader_.dataset().size() > 0, "trainer: the data set is empty");
  if (o.drop_last && loader_.size() == 0)
    fail_option({"batch_size", "drop_last"},
                "trainer: {} examples have no full batch of batch_size {}, expected a smaller one, or no drop_last",
                loader_.dataset().size(), o.batch_size);
  check(o.receipt.every >= 1, "trainer: receipt.every is {}, expected at least 1", o.receipt.every);
  check(!o.receipt.file.empty() || o.receipt.sign_key.empty(), "trainer: receipt.sign_key without receipt.file");
  check(o.tensorboard.histogram_every >= 0, "trainer: tensorboard.histogram_every is {}, expected 0 or more",
        o.tensorboard.histogram_every);
  check(o.keep_checkpoints >= 1 && o.watch.patience >= 0 && o.watch.min_delta >= 0,
        "trainer: keeps {} checkpoints, patience {}, min_delta {}: expected at least 1, 0, and 0", o.keep_checkpoints,
        o.watch.patience, o.watch.min_delta);
  check(!o.watch.save_best || (!o.watch.metric.empty() && !o.save_folder.empty()),
        "trainer: watch.save_best is set, expected watch.metric and save_folder to be set, too");
  check(!o.resume || !o.save_folder.empty(), "trainer: resume is set, expected save_folder to be set, too");
  if (!o.save_folder.empty()) ModuleTree::check_no_own_state(module_, "trainer: save_folder");
  check_watched_metric(o, test_ != nullptr);
  check(!o.forward || (!o.loss && o.label_smoothing == 0),
        "trainer: `forward` computes the loss, expected no `loss` and no label_smoothing");
  check_options_count(o);
  if (!o.watch.metric.empty()) o.watch.smallest = smallest_is_best(o);
  choose_shards();
  o.schedule.total_steps = o.epochs * steps_of(loader_.size());
  if (o.max_steps > 0) o.schedule.total_steps = std::min(o.schedule.total_steps, o.max_steps);
  check(optimizer_.schedule() == nullptr || (!o.schedule.base_lr && !is_scheduled(o.schedule)),
        "trainer: the optimizer's learning rate is a schedule, expected none in TrainerOptions::schedule");
  const std::optional<double> base_lr = o.schedule.base_lr;
  if (!base_lr) o.schedule.base_lr = optimizer_.base_learning_rate();
  scheduled_lr(o.schedule, 0);  // checks the schedule
  if (o.average_decay != 0) average_.emplace(module_, o.average_decay);
  if (o.dtype == DType::f16) scaler_.emplace(o.devices, o.loss_scaling);
  given_recipe_ = o.recipe;
  o.recipe = make_recipe();
  trained_options_ = options_without_rates(optimizer_);
  trained_groups_ = optimizer_.describe_groups();
  record_fixed_parts();
  join_ranks();
  // With one shard for each device there is nothing to balance.
  const std::vector<int> shares = splitter_->shares().all();
  if (o.split.balance.automatic && shares.size() > 1 && o.split.shards > std::ssize(shares)) {
    balancer_.emplace(o.devices, splitter_->shares(), *o.communicator, o.balancer);
  }
  clock_ = std::make_unique<TrainingClock>(o.devices);
  if (o.watch.save_best) best_ = std::make_unique<BestCheckpoint>(o.watch, o.save_folder, steps_of(loader_.size()));
  add_observers();
  // Comes last, so that a constructor that throws does not change the rate.
  if (base_lr) optimizer_.set_learning_rate(*base_lr);
}

Trainer::~Trainer() = default;

// Returns a batch that has the first example `times` times.
Example Trainer::first_of(const Dataset& data, std::size_t times) const {
  const std::vector<RandomKey> keys(times, random_key(*options_.seed, {}));
  const std::vector<std::int64_t> indices(times, 0);
  return options_.collate ? options_.collate(std::vector(times, data.get(0, keys[0]))) : data.batch(indices, keys);
}

// Tests measure the accuracy if there are no other metrics. Without this check, other labels fail only after an epoch.
void Trainer::check_test_labels() const {
  if (!test_ || test_->size() == 0 || !options_.metrics.empty() || options_.forward) return;
  const Example example = first_of(*test_);
  check(example.size() == 2,
        "trainer: examples of the test data have {} parts, expected inputs and labels, or TrainerOptions::forward",
        example.size());
  check(example[1].dtype() == DType::i64,
        "trainer: labels of the test data are {}, expected i64 for the accuracy, or other TrainerOptions::metrics",
        example[1].describe());
}

// If test examples have other shapes than the first batch, the model may reject them. Without this check, it would do
// so only after an epoch, whose weights would be lost.
void Trainer::check_test_shapes(const std::vector<Shape>& trained) const {
  if (!test_ || test_->size() == 0) return;
  const Example example = first_of(*test_, 2);
  const std::vector<Shape> shapes = shapes_of_rows(example);
  const bool by_model = !options_.forward;  // labels may be of any shape, for other metrics
  if (by_model ? shapes.at(0) == trained.at(0) : shapes == trained) return;
  try {
    pass(example);
  } catch (const std::exception& error) {
    fail("trainer: the first test example has the shape {}, those of training {}: {}", fmt::join(shapes, ", "),
         fmt::join(trained, ", "), error.what());
  }
}

// Checks only data in memory, whose labels are cheap to read.
void Trainer::check_labels(const Dataset& data, std::string_view what) const {
  const auto* const known = dynamic_cast<const TensorDataset*>(&data);
  if (classes_ == 0 || !known || known->tensors().size() != 2 || options_.batch_transform) return;
  const Tensor& labels = known->tensors()[1];
  if (labels.dtype() != DType::i64 || labels.numel() == 0) return;
  const std::span all(labels.data_ptr<const std::int64_t>(), static_cast<std::size_t>(labels.numel()));
  const auto wrong = std::ranges::find_if(
      all, [&](std::int64_t label) { return label != kIgnoredLabel && (label < 0 || label >= classes_); });
  check(wrong == all.end(), "trainer: {} example {} has the label {}, expected 0 to {}, as the model has {} outputs",
        what, wrong == all.end() ? 0 : (wrong - all.begin()) / (labels.numel() / labels.size(0)),
        wrong == all.end() ? 0 : *wrong, classes_ - 1, classes_);
}

// Batch norm rejects one value per channel. Batch sizes tell this before training does.
void Trainer::check_batch_norms() {
  const TrainerOptions& o = options_;
  struct Batch {
    std::string text, ways;
    std::int64_t samples;
    bool tests = false;
  };
  const std::string kind = o.accumulate > 1 ? "micro-batch" : "batch";
  const std::int64_t batches = loader_.size(), steps = steps_of(batches), micro = o.micro_batch_size();
  if (batches == 0) return;
  std::vector<Batch> reached{{"a " + kind, "another batch_size", loader_.batch_examples(0)}};
  // A run may end before the last batch of its epoch.
  const std::int64_t end = o.max_steps > 0 ? std::min(o.epochs * steps, o.max_steps) : o.epochs * steps;
  if (batches > 1 && end / steps > position_.step / steps) {
    const char* ways = o.drop_last ? "another batch_size" : "drop_last, another batch_size";
    reached.push_back({fmt::format("the last {} of an epoch", kind), ways, loader_.batch_examples(batches - 1)});
  }
  if (test_ && test_->size() > 0) {
    const std::int64_t n = test_->size(), last = n % micro == 0 ? micro : n % micro;
    reached.push_back({"a batch of tests", "track_running_stats, another batch_size", std::min(n, micro), true});
    reached.push_back({"the last batch of tests", "track_running_stats, another batch_size", last, true});
  }
  struct Suspect {
    std::string name;
    const BatchNorm* norm;
    const Batch* batch;
  };
  std::vector<Suspect> suspects;
  for (const auto& [name, module] : module_.named_modules()) {
    const auto* const norm = dynamic_cast<const BatchNorm*>(module);
    if (!norm) continue;
    for (const Batch& batch : reached) {
      if (batch.tests ? norm->running_mean.defined() : !norm->training()) continue;
      const std::vector<std::int64_t> rows =
          norm->synchronized() ? std::vector{batch.samples} : split_sizes(batch.samples, o.split.shards);
      if (std::ranges::find(rows, 1) != rows.end()) suspects.push_back({name, norm, &batch});
    }
  }
  if (suspects.empty()) return;
  // Number of values that two samples give each channel.
  std::map<const Module*, std::int64_t> values;
  try {
    const OutputObserver observer([&](const Module& m, const Tensor& y) {
      if (y.defined() && y.dim() >= 2 && y.size(1) > 0) values[&m] = y.numel() / y.size(1);
    });
    pass(first_of(loader_.dataset(), 2));
  } catch (const std::exception&) {
    return;  // the model may need whole batches: if not, training reports it
  }
  for (const auto& [name, norm, batch] : suspects) {
    if (values[norm] != 2) continue;
    const bool cut = batch->samples > 1;
    fail_option(
        {"batch_size", "drop_last", "convert_sync_batchnorm()"},
        "trainer: {} has {} sample{}{}, so batch norm {} would have 1 value per channel, expected more than 1: set "
        "{}{}",
        batch->text, batch->samples, cut ? "s" : "",
        cut ? fmt::format(" in shards of {}", fmt::join(split_sizes(batch->samples, o.split.shards), ", ")) : "",
        name.empty() ? "of the model" : name, batch->ways,
        cut ? " or number of shards, or convert_sync_batchnorm()" : "");
  }
}

// Returns all settings that decide the bits, and those of the options' recipe.
Recipe Trainer::make_recipe() const {
  const TrainerOptions& o = options_;
  const ScheduleOptions& schedule = optimizer_.schedule() != nullptr ? *optimizer_.schedule() : o.schedule;
  Recipe recipe = {{"seed", *o.seed},
                   {"shards", o.split.shards},
                   {"batch_size", o.batch_size},
                   {"accumulate", o.accumulate},
                   {"examples", loader_.dataset().size()},
                   {"shuffle", o.shuffle && !o.sampler},
                   {"dtype", name(o.dtype)},
                   {"learning_rate", *schedule.base_lr},
                   {"schedule", schedule_name(schedule)},
                   {"warmup", schedule.warmup},
                   {"clip_norm", o.clip_norm},
                   {"label_smoothing", o.label_smoothing}};
  const DeviceState& device = state_of(o.devices[0], "trainer");
  if (device.backend->threads_decide_bits(o.dtype))
    recipe.set("threads_per_shard", device.contexts.front()->threads_per_shard);
  if (const std::uint64_t seed = device.random()->seed(); seed != *o.seed) recipe.set("random_seed", seed);
  // These are the names that the tool's recipes have.
  const Optimizer::Rule rule = optimizer_.rule();
  recipe.set("optimizer", rule.name);
  for (const auto& [name, value] : rule.options) recipe.set(name, value);
  if (const std::string groups = optimizer_.describe_groups(); !groups.empty()) recipe.set("parameter_groups", groups);
  record_schedule(recipe, schedule);
  if (o.sampler) recipe.set("sampler", hash_of_orders(*o.sampler, *o.seed));
  if (o.drop_last) recipe.set("drop_last", true);
  if (o.collate) recipe.set("collate", true);
  if (o.batch_transform) recipe.set("batch_transform", true);
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
  // The file grows while algorithms are timed. Its path names the choices: one file gives the same bits in all runs.
  if (const auto& file = kernels.cuda_algorithms; !file.empty()) {
    recipe.set("cuda_algorithms", std::filesystem::absolute(file).lexically_normal().string());
  }
  // Trainer does not know what initialize() was called with. All ranks get rank 0's weights.
  const std::string init = default_init(module_, *o.seed), first = ranks().broadcast_on_host(init, "initial weights");
  if (!init.empty()) recipe.set("init", first.empty() ? init : first);
  std::string reset;
  for (const auto& [name, p] : module_.named_parameters()) {
    if (const std::string text = p.reset_text(); !text.empty())
      reset += fmt::format("{}{}: {}", reset.empty() ? "" : "; ", name, text);
  }
  if (!reset.empty()) recipe.set("init_of", reset);
  recipe.update(o.recipe);
  return recipe;
}

void Trainer::record_optimizer() {
  const std::vector<OptimizerOptions> now = options_without_rates(optimizer_);
  const std::string groups = optimizer_.describe_groups();
  const double rate = optimizer_.base_learning_rate();
  if (now == trained_options_ && groups == trained_groups_ && rate == *options_.schedule.base_lr) return;
  trained_options_ = now;
  trained_groups_ = groups;
  options_.schedule.base_lr = rate;
  options_.recipe = given_recipe_;
  options_.recipe = make_recipe();
}

void Trainer::check_optimizer() const {
  check(options_without_rates(optimizer_) == trained_options_,
        "trainer: the optimizer's options have changed in the run: expected other rates alone, or a new Trainer");
}

void Trainer::record_fixed_parts() {
  std::string frozen, evaluating;
  const auto add = [](std::string& names, const std::string& name) { names += (names.empty() ? "" : ",") + name; };
  for (const auto& [name, p] : module_.named_parameters()) {
    if (!p.trainable() || !p.optimized()) add(frozen, name);
  }
  // If the model itself is in evaluation mode, run() puts all of it into training mode, so nothing is recorded.
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
  const std::int64_t devices = ranks().sum_on_host(std::ssize(o.devices), "number of devices");
  const std::int64_t batch = o.micro_batch_size();
  if (o.split.shards == 0) {
    o.split.shards = on_gpu() ? static_cast<int>(devices) : default_shards(batch);
  }
  check(o.split.shards >= devices,
        "trainer: {} of a batch of {} for {} devices, expected at least one for each: set "
        "TrainerOptions::split.shards",
        count_of(o.split.shards, "shard"), batch, devices);
}

void Trainer::join_ranks() {
  const TrainerOptions& o = options_;
  // The shares with which automatic balance begins.
  const SplitOptions fixed{.shards = o.split.shards, .balance = {.weights = o.split.balance.weights}};
  if (ranks().alone()) {
    splitter_ = std::make_unique<BatchSplitter>(o.devices, fixed, *o.communicator);
    for (const Parameter& p : module_.parameters()) p.gradient_state().set_dtype(o.gradients);
    return;
  }
  try {
    settle_model();
  } catch (const std::exception& error) {
    ranks().abort(error.what());
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
  if (!o.receipt.file.empty()) recipe += fmt::format("receipt every {} steps\n", o.receipt.every);
  if (o.split.balance.automatic) recipe += fmt::format("balance auto, every {} steps\n", o.balancer.every);
  splitter_ = std::make_unique<DistributedModel>(
      module_, o.devices, *o.communicator,
      DistributedOptions{.split = fixed, .gradients = o.gradients, .recipe = recipe});
}

// Settles the shapes that the model leaves open. Takes an example twice, because batch norm without running statistics
// rejects a single one.
void Trainer::settle_model() const { pass(first_of(loader_.dataset(), 2)); }

void Trainer::settle_open_shapes() const {
  if (!std::ranges::all_of(module_.parameters(), &Parameter::shape_known)) settle_model();
}

// Passes a batch through the model on the first device, in evaluation mode. Keeps the position of random numbers.
void Trainer::pass(Example batch) const {
  const TrainerOptions& o = options_;
  const auto kept = keep_random_position();
  if (!o.forward) return settle_shapes(module_, batch.at(0), o.devices[0]);
  const NoGradGuard no_grad;
  const EvalGuard mode(module_);
  for (Tensor& part : batch) part = part.to(o.devices[0]);
  o.forward(batch);
}

// The random numbers that are drawn while the result exists do not change those of the training.
std::shared_ptr<void> Trainer::keep_random_position() const {
  const std::shared_ptr<RandomState> random = state_of(options_.devices[0], "trainer").random();
  return {nullptr, [random, position = random->position()](void*) { random->set_position(position); }};
}

// The loader asks for its rows when it runs, after the ranks have joined. A process that is alone loads all rows.
DataLoaderOptions Trainer::rows_of_rank(DataLoaderOptions options) const {
  options.pin_for = options_.devices[0];
  options.collate = options_.collate;
  options.workers = options_.workers;
  if (!ranks().alone()) options.rows = [this](std::int64_t n) { return splitter_->rows_of(n); };
  return options;
}

// The run.

bool Trainer::finished() const {
  return position_.epoch >= options_.epochs || (options_.max_steps > 0 && position_.step >= options_.max_steps);
}

TrainingResult Trainer::train() { return train_until(std::numeric_limits<std::int64_t>::max()); }

TrainingResult Trainer::train_until(std::int64_t step) {
  until_ = step;
  // Tells waiting ranks why this rank does not come. Drops the recording, which may lack a part of the step.
  const auto give_up = [this](const std::string& reason) {
    recorded_ = nullptr;
    ranks().abort(reason);
  };
  try {
    try {
      return run();
    } catch (const std::exception& error) {
      clock_->stop();
      observers_->abort(error.what());
      throw;
    }
  } catch (const NonFiniteLoss&) {
    recorded_ = nullptr;  // no rank waits for another: all have the same loss
    throw;
  } catch (const TaskError& error) {
    give_up(error.what());
    // Reports a lost rank as a failure of the job, not of the task that waited for the rank.
    try {
      std::rethrow_exception(error.failure().cause);
    } catch (const CommError&) {
      throw;
    } catch (...) {
      throw error;
    }
  } catch (const std::exception& error) {
    give_up(error.what());
    throw;
  } catch (...) {
    give_up("an exception ended it");
    throw;
  }
}

// Drops what an exception left of a step.
void Trainer::abandon_step() {
  current_ = {};
  observers_->drop();
  agreed_stop_ = false;
  optimizer_.zero_grad();
  const std::int64_t steps = position_.step - position_.epoch * steps_of(loader_.size());
  position_.batch = std::min(steps * options_.accumulate, loader_.size());
  // A new run draws the same dropout masks, whatever ran before in this Runtime.
  const std::shared_ptr<RandomState> random = state_of(options_.devices[0], "trainer").random();
  random->set_step(position_.step == 0 ? 0 : random->step());
}

TrainingResult Trainer::run() {
  TrainingResult result;
  // Skips this if a call of resume() or train() has begun the run.
  if (options_.resume && position_.step == 0 && position_.batch == 0 && resumed_from_.empty()) {
    result.resumed = resume_or_start();
  }
  if (position_.step == 0 && position_.batch == 0 && resumed_from_.empty()) record_optimizer();
  record_fixed_parts();
  // If the model is in training mode, parts in evaluation mode stay in it, such as frozen ones.
  if (!module_.training()) module_.train();
  if (!finished()) {
    check_test_labels();
    check_batch_norms();
  }
  abandon_step();
  const LeftOutGuard left_out(module_);
  optimizer_.set_schedule_runs(!keeps_learning_rate());
  const std::shared_ptr<void> schedule_ends(nullptr, [this](void*) { optimizer_.set_schedule_runs(false); });
  const auto claim = claim_save_folder();
  if (best_ && best_->settle(ranks(), position_, options_.recipe, resumed_from_)) save(best_->folder(), 1);
  start_observers();
  // Reads the losses of steps that an exception left in flight.
  if (!pending_.empty()) {
    clock_->start();
    read_losses(0);
    clock_->stop();
  }
  while (!finished() && !ends_here() && !stops_early(position_.epochs, options_.watch)) {
    loader_.set_epoch(position_.epoch);
    std::int64_t batches = loader_.size();
    loader_.skip_batches(position_.batch);
    clock_->start();
    if (balancer_) balancer_->resume();
    std::optional<DataLoader::Iterator> loop;
    clock_->measure([&] { loop.emplace(loader_.begin()); });
    while (*loop != loader_.end()) {
      // Takes all micro-batches first, because the labels of all decide how much each counts.
      const std::int64_t size = std::min(options_.accumulate, batches - position_.batch);
      std::vector<Example> step{std::move(**loop)};
      while (std::ssize(step) < size) {
        clock_->measure([&] { ++*loop; });
        step.push_back(std::move(**loop));
      }
      const std::vector<Shape> trained = tested_ ? std::vector<Shape>() : shapes_of_rows(step[0]);
      run_step(step);
      if (!std::exchange(tested_, true)) {
        check_test_shapes(trained);
        check_labels(loader_.dataset(), "training");
        if (test_) check_labels(*test_, "test");
      }
      finish_step(batches);
      // All ranks read the losses here, because these also tell whether a rank was asked to stop.
      if (!options_.receipt.file.empty() && position_.step % options_.receipt.every == 0) {
        read_losses(0);
        settle_observers(false);
      }
      if (finished() || ends_here()) break;
      if (options_.save_every > 0 && position_.step % options_.save_every == 0 && position_.batch < batches) {
        read_losses(0);
        clock_->stop(position_);
        save();
        clock_->start();
      }
      rebalance(loop);
    }
    loop.reset();
    if (balancer_) balancer_->pause();
    read_losses(0);
    clock_->stop(position_);
    // Includes requests to ranks whose shards had no samples.
    agreed_stop_ = ranks().sum_on_host(stop_ ? 1 : 0, "stop requests") > 0 || agreed_stop_;
    if (position_.batch < batches && ends_here()) break;
    // An epoch that max_steps cuts short is reported, too, but the position stays inside it.
    EpochReport report = test();
    report.epoch = position_.epoch + 1;
    report.seconds = position_.seconds;
    report.data_seconds = position_.data_seconds;
    // NaN if each step of the epoch threw NonFiniteLoss, and the program called train() again each time.
    const auto mean = [&](double sum) {
      return position_.samples == 0 ? std::numeric_limits<double>::quiet_NaN()
                                    : sum / static_cast<double>(position_.samples);
    };
    report.train_loss = mean(position_.loss_sum);
    for (const auto& [name, sum] : position_.log_sums) report.log.emplace_back(name, mean(sum));
    result.epochs.push_back(report);
    observers_->each([&](TrainingObserver& o) { o.epoch(report); });
    if (on_epoch) on_epoch(report);
    if (position_.batch < batches) break;
    std::vector<EpochReport> epochs = std::move(position_.epochs);
    std::erase_if(report.metrics, [](const MetricResult& m) { return !m.table.empty(); });
    epochs.push_back(std::move(report));
    position_ = {.step = position_.step, .epoch = position_.epoch + 1, .epochs = std::move(epochs)};
    const bool best = best_ && best_->add(position_.epochs.back());
    // Writes the save folder first: if the run is killed before it writes "best", the resumed run writes it.
    if (!options_.save_folder.empty() &&
        (options_.save_every == 0 || position_.step % options_.save_every == 0 || best)) {
      save();
    }
    if (best) save(best_->folder(), 1);
  }
  if (!options_.save_folder.empty() && saved_step_ != position_.step) save();
  settle_observers(true);
  result.steps = position_.step;
  result.stopped = stopping();
  if (result.stopped) stop_ = false;
  if (best_) {
    result.lost_best = best_->lost();
    result.best = best_->best();
  } else if (!options_.watch.metric.empty()) {
    result.best.epoch = best_epoch(position_.epochs, options_.watch);
  }
  result.stopped_early = !result.stopped && !finished() && stops_early(position_.epochs, options_.watch);
  if (!result.epochs.empty()) {
    result.last = result.epochs.back();
  } else if (finished() || !ends_here()) {
    result.last = test();
  }
  result.failures = observers_->end(result);
  return result;
}

void Trainer::observe(std::shared_ptr<TrainingObserver> observer) {
  const bool reads_state = dynamic_cast<const StepObserver*>(observer.get()) != nullptr;
  observers_->add([this, reads_state, observer = std::move(observer)] {
    if (reads_state) settle_open_shapes();
    return observer;
  });
}

// Adds those of the options, in the order that training_observer.h promises.
void Trainer::add_observers() {
  const TrainerOptions& o = options_;
  // Trainings share one watch, because its file is that of a Trainer.
  observers_->add([this, watch = std::shared_ptr<StepWatch>()]() mutable {
    if (!watch) {
      watch =
          StepWatch::from_environment(rank(), ranks().world_size(), splitter_->shards(), options_.recipe, optimizer_);
    }
    return watch;
  });
  if (rank() != 0) return;
  if (!o.receipt.file.empty()) {
    observers_->add([this] {
      settle_open_shapes();
      return std::make_shared<ReceiptObserver>(options_.receipt, on_gpu() ? "cuda" : "cpu", loader_.dataset(),
                                               test_.get(), resumed_from_.parent_path(),
                                               [this] { return state_now(); });
    });
  }
  if (!o.log_file.empty()) observers_->add([this] { return std::make_shared<TrainingLog>(options_.log_file); });
  if (!o.tensorboard.folder.empty()) {
    observers_->add([this] {
      // With `forward`, the program calls the module in its own way, so there is no graph to show.
      Tensor first;
      if (position_.step == 0 && !options_.forward) {
        first = first_of(loader_.dataset()).at(0);
        if (is_floating(first.dtype())) first = first.to(options_.dtype);
        first = first.to(options_.devices[0]);
      }
      return std::make_shared<TrainingBoard>(options_.tensorboard, loader_.dataset(), first);
    });
  }
}

void Trainer::start_observers() {
  const TrainerOptions& o = options_;
  observers_->start({.position = position_,
                     .recipe = &o.recipe,
                     .module = &module_,
                     .metrics = &o.metrics,
                     .devices = o.devices,
                     .shards = o.split.shards,
                     .rank = rank(),
                     .world_size = ranks().world_size(),
                     .backend = std::string(ranks().backend_name())});
}

void Trainer::settle_observers(bool urgent) {
  const auto [step, loss] = last_loss_;
  // If no step was made since the run began or resumed, there is nothing to observe.
  const SettledStep state{step == position_.step ? step : 0, loss, [this] { return state_now(); }};
  observers_->each_step([&](StepObserver& o) { o.settled(state, urgent); });
}

// Returns the state of this rank, which all ranks share. Waits for the values.
StateDigest Trainer::state_now() const {
  return state_digest({.weights = state_dict(module_),
                       .optimizer = optimizer_.state_dict(),
                       .average = average_ ? average_->state_dict() : StateDict(),
                       .loss_scaler = scaler_ ? std::optional(scaler_->state()) : std::nullopt});
}

std::pair<DataLoader, EvaluateOptions> Trainer::test_data() const {
  return {DataLoader(test_, rows_of_rank({.batch_size = options_.micro_batch_size(), .seed = options_.seed})),
          {.devices = options_.devices,
           .dtype = options_.forward ? DType::f32 : options_.dtype,
           .distributed = splitter_.get(),
           .forward = options_.forward}};
}

EpochReport Trainer::test() {
  EpochReport report;
  if (!test_) return report;
  const auto kept = keep_random_position();
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

// One step: micro-batches, the update, and the delayed report.

double Trainer::weight_of(const Example& batch) const {
  if (options_.loss_weight) return options_.loss_weight(batch);
  const Tensor& labels = batch.at(1);
  if (labels.dtype() != DType::i64) return static_cast<double>(labels.size(0));
  const std::span all(labels.data_ptr<const std::int64_t>(), static_cast<std::size_t>(labels.numel()));
  return static_cast<double>(labels.numel() - std::ranges::count(all, kIgnoredLabel));
}

// Adds weights in the shards' tree, so that shares have the same bits on any layout.
std::vector<double> Trainer::shares_of(std::span<const Example> step) const {
  const TrainerOptions& o = options_;
  const bool default_loss = !o.loss && !o.forward && step[0].size() == 2;
  const auto shards = static_cast<std::size_t>(o.split.shards);
  std::vector<double> samples, weights;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const std::int64_t n = loader_.batch_examples(position_.batch + static_cast<std::int64_t>(i));
    samples.push_back(static_cast<double>(n));
    if (!o.loss_weight && !default_loss) continue;
    const auto [begin, end] = splitter_->rows_of(n);
    const std::size_t first = weights.size();
    weights.resize(first + shards, 0);  // other ranks have the other shards
    std::int64_t row = 0;
    for (std::size_t s = 0; const std::int64_t size : split_sizes(n, o.split.shards)) {
      if (row >= begin && row + size <= end) {
        Example rows;
        for (const Tensor& part : step[i]) rows.push_back(part.narrow(0, row - begin, size));
        const double weight = weight_of(rows);
        check(std::isfinite(weight) && weight >= 0,
              "trainer: TrainerOptions::loss_weight returned {}, expected a finite number of at least 0", weight);
        weights[first + s] = weight;
      }
      row += size;
      ++s;
    }
  }
  const auto normalized = [](std::vector<double> all) {
    double sum = 0;
    for (const double x : all) sum += x;
    for (double& x : all) x /= sum;
    return all;
  };
  if (weights.empty()) return normalized(std::move(samples));
  weights = ranks().sum_on_host(std::move(weights), "weights of micro-batches");
  std::vector<double> totals;
  for (std::size_t first = 0; first < weights.size(); first += shards) {
    totals.push_back(*tree_fold(
        first, shards, [&](std::size_t i) { return std::optional(weights[i]); }, std::plus<>()));
  }
  // If nothing counts, the loss is NaN, as that of the whole batch would be.
  const bool none = std::ranges::all_of(totals, [](double weight) { return weight == 0; });
  return normalized(none ? std::move(samples) : std::move(totals));
}

void Trainer::run_step(std::span<Example> step) {
  for (const Example& batch : step) {
    check(options_.forward ? !batch.empty() : batch.size() == 2,
          "trainer: examples have {} parts, expected inputs and labels, or TrainerOptions::forward", batch.size());
  }
  observers_->each_step([&](StepObserver& o) { o.begin(position_.step + 1); });
  // Stays fixed for the step, even if an observer fails in the step and no longer observes it.
  current_.recorded = records();
  const std::vector<double> shares = step.size() == 1 ? std::vector<double>{1} : shares_of(step);
  const auto last = static_cast<std::size_t>(
      shares.rend() - std::ranges::find_if(shares.rbegin(), shares.rend(), [](double share) { return share != 0; }));
  for (std::size_t i = 0; i < step.size(); ++i, ++position_.batch) {
    const std::int64_t samples = loader_.batch_examples(position_.batch);
    current_.report.samples += samples;
    // Skips micro-batches of weight 0: a mean over nothing would make the step NaN.
    if (shares[i] != 0) run_micro_batch(step[i], samples, shares[i], i + 1 == last);
    step[i].clear();
  }
}

void Trainer::run_micro_batch(Example& batch, std::int64_t samples, double share, bool last) {
  const std::vector<Tensor> parts = splitter_->split(batch, samples);
  observers_->each_step([&](StepObserver& o) { o.batch(parts); });
  // Reads the scale of this step before the update, and outside a recording.
  if (scaler_ && !current_.loss_scale.defined()) current_.loss_scale = scaler_->current();
  // Ranks stop only between steps, so they vote with the last micro-batch.
  const bool votes = !ranks().alone() && last;
  if (votes) splitter_->stop_votes().cast(stop_);
  std::vector<Tensor> scalars = current_.recorded ? recorded_step(parts) : learn(parts, share, last);
  for (Tensor& scalar : scalars) scalar = scalar.detach();
  const Tensor loss = scalars[0];
  current_.losses.emplace_back(share, std::move(scalars));
  if (votes) {
    current_.stopped = splitter_->stop_votes().count();
    current_.learned = ops::empty({1}, DType::f32, loss.device());
    ops::fill_(current_.learned, 1);
  }
}

// Does not record exchanges between ranks, which differ from step to step, a step of micro-batches, which is several
// calls, or an observed step, whose gradients are read before the update.
bool Trainer::records() const {
  return options_.record_steps && ranks().alone() && options_.accumulate == 1 && !(balancer_ && on_gpu()) &&
         !observers_->observes(position_.step + 1);
}

bool Trainer::on_gpu() const {
  return std::ranges::any_of(options_.devices, [](Device d) { return d.kind() == DeviceKind::cuda; });
}

std::string Trainer::why_not_recorded() const {
  if (!options_.record_steps) return "";
  if (!ranks().alone()) return "it is one of several processes";
  if (options_.accumulate > 1) return "it has several micro-batches";
  if (balancer_ && on_gpu()) return "the speed of each GPU is measured, and a CUDA graph has one time for all";
  return recorded_ ? recorded_->why_not() : "";
}

std::string Trainer::why_no_graph() const {
  return on_gpu() && recorded_ && recorded_->recorded() ? recorded_->why_no_graph() : "";
}

BatchOutputs Trainer::outputs_of(std::span<const Tensor> parts) const {
  const TrainerOptions& o = options_;
  if (o.forward) {
    BatchOutputs found = o.forward({parts.begin(), parts.end()});
    add_loss_terms(found);
    return found;
  }
  const Tensor &x = parts[0], &labels = parts[1];
  // Integers, such as indices of words, are not cast.
  const Tensor outputs = module_(is_floating(x.dtype()) ? x.to(o.dtype) : x);
  if (!o.loss && outputs.dim() >= 2) classes_ = outputs.size(1);
  return {
      .loss = o.loss ? o.loss(outputs, labels) : cross_entropy(outputs, labels, {.label_smoothing = o.label_smoothing}),
      .outputs = outputs};
}

std::vector<Tensor> Trainer::learn(std::span<const Tensor> parts, double share, bool sync) {
  const DtypeWatch watch(options_.dtype);
  const auto [loss, outputs, targets, log, terms] = outputs_of(parts);
  check(loss.defined(), "trainer: TrainerOptions::forward returned no loss");
  // A language model chooses its own dtype, but the recipe and the loss scale depend on the option.
  const DType dtype = outputs.dtype();
  check(!is_half_dtype(dtype) || dtype == options_.dtype,
        "trainer: the model computes in {}, expected TrainerOptions::dtype, {}", name(dtype), name(options_.dtype));
  if (is_half_dtype(options_.dtype) && !dtype_found_) {
    dtype_found_ = watch.seen();
    check(dtype_found_, "trainer: nothing is computed in {}, TrainerOptions::dtype: {}", name(options_.dtype),
          options_.forward ? "expected `forward` to cast its inputs, as in batch[0].to(dtype)"
                           : "expected a model whose options name it, as GPTOptions::dtype");
  }
  loss.backward({.share = share, .scales = scaler_ ? scaler_->scales() : std::span<const Array>(), .sync = sync});
  std::vector<std::string> names;
  std::vector<Tensor> scalars{loss};
  for (const auto& [name, scalar] : log) {
    check(scalar.defined() && scalar.numel() == 1 && scalar->kind != Kind::cut && is_floating(scalar.dtype()),
          "trainer: `log` has {} as \"{}\", expected the mean of a batch, as a loss returns", scalar, name);
    check(std::ranges::find(names, name) == names.end(), "trainer: `log` has \"{}\" twice", name);
    names.push_back(name);
    scalars.push_back(scalar);
  }
  if (!log_names_) {
    log_names_ = names;
    // The means of an epoch are over all of its samples, also those before a checkpoint.
    std::vector<std::string> before;
    for (const auto& [name, sum] : position_.log_sums) before.push_back(name);
    check(position_.samples == 0 || names == before,
          "trainer: `log` has [{}], and had [{}] in the part of this epoch before the checkpoint: expected the same to "
          "the epoch's end",
          fmt::join(names, ", "), fmt::join(before, ", "));
  }
  check(names == *log_names_, "trainer: `log` has [{}], expected [{}] as in the steps before", fmt::join(names, ", "),
        fmt::join(*log_names_, ", "));
  return scalars;
}

bool Trainer::keeps_learning_rate() const {
  return optimizer_.schedule() == nullptr && !is_scheduled(options_.schedule);
}

// Sets the rate even if this Trainer keeps it, because another Trainer's schedule may have left another rate.
void Trainer::schedule_learning_rate() {
  check_optimizer();
  if (optimizer_.schedule() != nullptr) return;
  const double rate =
      keeps_learning_rate() ? optimizer_.base_learning_rate() : scheduled_lr(options_.schedule, position_.step);
  if (rate != optimizer_.learning_rate()) optimizer_.set_scheduled_learning_rate(rate);
}

void Trainer::update() {
  if (scaler_) {
    optimizer_.unscale(*scaler_, options_.clip_norm);
  } else if (options_.clip_norm > 0) {
    optimizer_.clip_grad_norm(options_.clip_norm);
  }
  optimizer_.step();
}

std::vector<Tensor> Trainer::recorded_step(std::span<const Tensor> parts) {
  std::vector<bool> trainable;
  for (const Parameter& p : module_.parameters()) trainable.push_back(p.trainable());
  // forget_recording() does not drop it at once, because the recording may be running.
  if (std::exchange(forgets_recording_, false)) recorded_ = nullptr;
  // A recording trains the parameters that were trained when it was made.
  if (!recorded_ || trainable != recorded_trainable_) {
    recorded_trainable_ = std::move(trainable);
    recorded_ = std::make_unique<RecordedStep>([this](std::span<const Tensor> inputs) {
      std::vector<Tensor> scalars = learn(inputs, 1, true);
      update();
      return scalars;
    });
  }
  schedule_learning_rate();
  return recorded_->run(parts);
}

void Trainer::finish_step(std::int64_t batches) {
  const auto loss_scale = [&]() -> double { return scaler_ ? current_.loss_scale.item<float>() : 1; };
  observers_->each_step([&](StepObserver& o) { o.backward(loss_scale); });
  if (!current_.recorded) {
    schedule_learning_rate();
    update();
  }
  if (average_) average_->update();
  current_.report.learning_rate = optimizer_.learning_rate();
  ++position_.step;
  observers_->each([&](TrainingObserver& o) { o.update(position_.step); });
  if (on_update) on_update(position_.step);
  std::vector<Tensor> losses;
  for (const auto& [share, scalars] : current_.losses) losses.push_back(scalars[0]);
  observers_->each_step([&](StepObserver& o) { o.updated(losses); });
  StepReport& report = current_.report;
  report.step = position_.step;
  report.epoch = position_.epoch + 1;
  report.batch = steps_of(position_.batch);
  report.batches = steps_of(batches);
  report.shares = splitter_->shares().all();
  pending_.push_back(std::exchange(current_, {}));
  // Keeps a few steps in flight, so that the devices never wait for the host.
  constexpr std::size_t kInFlight = 2;
  read_losses(kInFlight);
}

// Collective; runs between two steps. `loop` is at the batch that was used last.
void Trainer::rebalance(std::optional<DataLoader::Iterator>& loop) {
  const auto next = [&] { clock_->measure([&] { ++*loop; }); };
  if (!balancer_ || !balancer_->step()) return next();
  // The recording has the tasks of the old shares, so the step is recorded again.
  recorded_ = nullptr;
  if (ranks().alone()) {
    splitter_->set_shares(balancer_->shares());
    return next();
  }
  // Drops batches that were loaded ahead, because they have the rows of the old shares.
  loop.reset();
  splitter_->set_shares(balancer_->shares());
  loader_.skip_batches(position_.batch);
  clock_->measure([&] { loop.emplace(loader_.begin()); });
}

void Trainer::read_losses(std::size_t leave) {
  while (pending_.size() > leave) {
    PendingLoss next = std::move(pending_.front());
    pending_.pop_front();
    StepReport& report = next.report;
    // The loss is ready before the backward pass ends. Waking up for it then would take a core from the backward pass;
    // after it, cores wait for the gradients of other processes.
    if (next.learned.defined()) next.learned.wait();
    report.loss = 0;
    report.log.clear();
    for (const std::string& name : *log_names_) report.log.emplace_back(name, 0);
    const auto value_of = [](const Tensor& scalar) {
      return scalar.dtype() == DType::f64 ? scalar.item<double>() : double{scalar.item<float>()};
    };
    for (const auto& [share, scalars] : next.losses) {
      report.loss += share * value_of(scalars[0]);
      for (std::size_t i = 1; i < scalars.size(); ++i) report.log[i - 1].second += share * value_of(scalars[i]);
    }
    if (next.stopped.defined()) agreed_stop_ = agreed_stop_ || next.stopped.item<float>() != 0;
    // The losses of later steps are read by the next call.
    if (!std::isfinite(report.loss)) {
      const bool nan = std::isnan(report.loss);
      throw NonFiniteLoss(fmt::format(
          "the loss is {} at step {}{}{}", nan ? std::numeric_limits<double>::quiet_NaN() : report.loss, report.step,
          last_good_checkpoint(), nan ? "; a step of which all labels are ignored has this loss, too" : ""));
    }
    if (next.loss_scale.defined()) report.loss_scale = next.loss_scale.item<float>();
    clock_->add(report);
    last_loss_ = {report.step, report.loss};
    position_.loss_sum += report.loss * static_cast<double>(report.samples);
    position_.samples += report.samples;
    if (position_.log_sums.empty()) position_.log_sums = NamedScalars(report.log.size());
    for (std::size_t i = 0; i < report.log.size(); ++i) {
      auto& [name, sum] = position_.log_sums.at(i);
      name = report.log[i].first;
      sum += report.log[i].second * static_cast<double>(report.samples);
    }
    observers_->each([&](TrainingObserver& o) { o.step(report); });
    if (on_step) on_step(report);
    // At such a small scale, the cause is not overflow.
    check(!report.loss_scale || *report.loss_scale >= 0x1p-20,
          "the gradients are still not finite at step {} with the smallest loss scale", report.step);
  }
}

// Checkpoints, written and read together with all ranks.

ResumedRun Trainer::resume(const std::filesystem::path& folder) {
  CheckpointContents checkpoint;
  ranks().agree("checkpoint to resume from", [&] {
    if (rank() == 0) checkpoint = read_checkpoint(folder);
  });
  return resume(std::move(checkpoint));
}

std::optional<ResumedRun> Trainer::resume_or_start() {
  check(!options_.save_folder.empty(), "trainer: resume_or_start() without TrainerOptions::save_folder");
  std::optional<CheckpointContents> found;
  ranks().agree("checkpoint to resume from", [&] {
    if (rank() == 0) found = find_checkpoint(options_.save_folder);
  });
  const bool resumes = ranks().gather_on_host(found ? 1 : 0, "resumes or starts")[0] != 0;
  if (!resumes) return std::nullopt;
  return resume(found ? std::move(*found) : CheckpointContents());
}

// Sends rank 0's checkpoint to the others.
void Trainer::share(CheckpointContents& checkpoint) const {
  const auto number = [&](std::int64_t mine) { return ranks().gather_on_host(mine, "checkpoint to resume from")[0]; };
  const auto text = [&](std::string mine) {
    return ranks().broadcast_on_host(std::move(mine), "checkpoint to resume from");
  };
  checkpoint.path = text(checkpoint.path.string());
  checkpoint.step = number(checkpoint.step);
  checkpoint.damaged.resize(static_cast<std::size_t>(number(std::ssize(checkpoint.damaged))));
  for (std::string& error : checkpoint.damaged) error = text(error);
  std::vector<std::string> names;
  for (const auto& [name, contents] : checkpoint.files) names.push_back(name);
  names.resize(static_cast<std::size_t>(number(std::ssize(names))));
  std::map<std::string, std::string> files;
  for (const std::string& mine : names) {
    const std::string name = text(mine);
    files[name] = text(std::move(checkpoint.files[name]));
  }
  checkpoint.files = std::move(files);
}

ResumedRun Trainer::resume(CheckpointContents checkpoint) {
  if (!ranks().alone()) share(checkpoint);
  ResumedRun run;
  std::optional<RecipeMismatch> mismatch;
  record_fixed_parts();
  const auto load = [&] {
    run = load_checkpoint(std::move(checkpoint), module_, optimizer_, options_.recipe, [&](const ResumedRun& found) {
      try {
        if (scaler_) {
          check(found.position.loss_scaler.has_value(), "the checkpoint has no loss scale");
          scaler_->check_state(*found.position.loss_scaler);
        }
        if (average_) average_->check_state_dict(found.average);
        // The recipe fixes the number of steps in an epoch, but a crafted position could be anywhere in one.
        const TrainingPosition& p = found.position;
        const std::int64_t batches = loader_.size();
        std::int64_t steps = 0;
        const bool countable = !__builtin_mul_overflow(p.epoch, steps_of(batches), &steps) && p.batch <= batches &&
                               !__builtin_add_overflow(steps, steps_of(p.batch), &steps);
        check(countable && steps == p.step, "step {} does not follow from epoch {} and batch {} of {}", p.step, p.epoch,
              p.batch, batches);
      } catch (const Error& error) {
        fail("{}: {}", found.path.string(), error.what());
      }
    });
    if (scaler_) scaler_->set_state(*run.position.loss_scaler);
    if (average_) average_->load_state_dict(run.average);
    if (keeps_learning_rate() && run.position.learning_rate) {
      optimizer_.set_learning_rate(*run.position.learning_rate);
    }
  };
  try {
    ranks().agree("checkpoints", [&] {
      try {
        load();
      } catch (const RecipeMismatch& error) {
        mismatch = error;
        throw;
      }
    });
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    if (mismatch) throw RecipeMismatch(error.what(), mismatch->file, mismatch->differences);
    throw;
  }
  pending_.clear();  // the checkpoint undoes these steps
  position_ = run.position;
  saved_step_ = position_.step;
  resumed_from_ = run.path;
  return run;
}

// Reports a folder that is not writable or that another run uses now, not only at the first checkpoint.
std::unique_ptr<FolderClaim> Trainer::claim_save_folder() const {
  const std::filesystem::path& folder = options_.save_folder;
  if (folder.empty()) return nullptr;
  std::unique_ptr<FolderClaim> claim;
  ranks().agree("checkpoint folder", [&] {
    if (rank() == 0) claim = std::make_unique<FolderClaim>(folder, position_.step);
  });
  return claim;
}

// Returns the end of an error message, which names the last good checkpoint.
std::string Trainer::last_good_checkpoint() const {
  if (options_.save_folder.empty()) return "";
  if (saved_step_ < 0) return "; there is no checkpoint yet";
  return fmt::format("; the last good checkpoint is that of step {}", saved_step_);
}

void Trainer::save(const std::filesystem::path& folder, int keep) {
  if (scaler_) position_.loss_scaler = scaler_->state();
  if (keeps_learning_rate()) position_.learning_rate = optimizer_.learning_rate();
  const bool in_save_folder = folder == options_.save_folder;
  ranks().agree("checkpoint", [&] {
    if (rank() != 0) return;
    try {
      // A process that is alone may be asked to stop before its first step.
      settle_open_shapes();
      // The receipt is never older than a checkpoint, so a run that resumes from one finds its link.
      if (in_save_folder) settle_observers(true);
      save_checkpoint(
          folder, module_, optimizer_, position_, options_.recipe,
          {.keep = keep, .average = average_ ? average_->state_dict() : StateDict(), .replace_later = !in_save_folder});
      if (in_save_folder) observers_->each([&](TrainingObserver& o) { o.checkpoint(folder); });
    } catch (const std::exception& error) {
      fail("{}{}", error.what(), last_good_checkpoint());
    }
  });
  if (in_save_folder) saved_step_ = position_.step;
}

}  // namespace lockstep
