#include "train_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "learning_task.h"
#include "lockstep/base/environment.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::app {
namespace {

// CLI11 rounds an out-of-range number to the nearest 64-bit number.
CLI::Validator unsigned_integer() {
  return CLI::Validator(
      [](std::string& text) {
        std::uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        bool fits = parsed.ec == std::errc() && parsed.ptr == end;
        return fits ? std::string()
                    : fmt::format("{} is not an integer in [0 - {}]", text, std::numeric_limits<std::uint64_t>::max());
      },
      "UINT");
}

CLI::Validator power_of_two() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        int exponent = 0;
        bool fits = CLI::detail::lexical_cast(text, value) && value >= 1 && value <= 0x1p40 &&
                    std::frexp(value, &exponent) == 0.5;
        return fits ? std::string() : text + " is not a power of two from 1 to 2^40";
      },
      "POWER OF TWO");
}

}  // namespace

void TrainOptions::add_to(CLI::App& app) {
  TrainOptions& o = *this;
  auto steps = CLI::Range(std::int64_t{0}, std::int64_t{1} << 40);
  auto amount = number_in(0, 1e9);
  add_model(app);
  add_dropout(app);
  add_init_from(app);
  add_tf32(app);
  add_devices(app);
  add_shards(app);
  add_data(app);
  add_limit_test(app);
  app.add_option("--limit-train", o.limit_train, "Use only the first N training examples [all]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--epochs", o.epochs, "Passes over the training data")->check(steps)->capture_default_str();
  app.add_option("--max-steps", o.max_steps, "End the run after N steps; 0: no limit [0]")->check(steps);
  app.add_option("--lr", o.lr, "Learning rate [0.1; gpt, lstm: 0.001]")->check(amount);
  app.add_option("--momentum", o.momentum, "sgd: momentum")->check(number_in(0, 1))->capture_default_str();
  app.add_option("--weight-decay", o.weight_decay, "Weight decay; adamw: decoupled")
      ->check(amount)
      ->capture_default_str();
  app.add_option("--optimizer", o.optimizer, "Optimizer [sgd; gpt, lstm: adamw]")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  app.add_option("--schedule", o.schedule,
                 "Learning rate after the warm-up; step: times 0.1 after each third of the steps; cosine: down to 0")
      ->check(CLI::IsMember({"constant", "step", "cosine"}))
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps in which the learning rate rises linearly to --lr [0]")->check(steps);
  app.add_option("--clip", o.clip, "Clip the norm of all gradients together to this; 0: no limit [0; gpt, lstm: 1]")
      ->check(amount);
  app.add_option("--accumulate", o.accumulate, "Micro-batches per step; must divide the batch size")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--balance", o.balance,
                 "Shards per device: equal; auto (by speed, measured every 20 steps); or one weight per device, rank "
                 "0's first, such as 2,1. Does not change the bits")
      ->capture_default_str();
  app.add_option("--gradients", o.gradients, "Number format of gradients when they are summed and sent between ranks")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--loss-scale", o.loss_scale,
                 "f16: initial loss scale, a power of two; halved when gradients overflow, doubled after 2000 steps "
                 "without overflow [65536]")
      ->check(power_of_two());
  app.add_option("--label-smoothing", o.label_smoothing, "Fraction of each target to spread over all classes [0]")
      ->check(number_in(0, 1));
  app.add_option("--seed", o.seed, "Seed of initial weights, data order, and dropout")
      ->check(unsigned_integer())
      ->capture_default_str();
  app.add_flag("--no-shuffle", o.no_shuffle, "Train on the examples in the order of the files");
  add_metrics(app);
  app.add_flag("--sync-bn", o.sync_bn,
               "Synchronized batch norm: statistics over the whole batch instead of each shard");
  app.add_flag("--record-steps", o.record_steps,
               "Record a step once and repeat it, as a CUDA graph on GPUs; does not change the bits");
  app.add_flag("--summary", o.summary, "Print a table of the model's layers first");
  app.add_option("--export", o.export_file, "Write the final weights and buffers to this safetensors file");
  app.add_option("--save", o.save, "Write checkpoints to this folder");
  app.add_option("--save-every", o.save_every, "Steps between checkpoints [one after each epoch]")
      ->check(steps)
      ->needs("--save");
  app.add_option("--keep", o.keep, "Number of newest checkpoints to keep")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->needs("--save");
  app.add_option("--watch", o.watch,
                 "Metric for --patience and --save-best: accuracy, train_loss, or one of --metrics [accuracy; gpt, "
                 "lstm: perplexity]");
  app.add_option("--patience", o.patience, "End the run after N epochs without a better value of --watch; 0: never [0]")
      ->check(steps);
  app.add_option("--min-delta", o.min_delta, "Smallest change of --watch that counts as better [0]")->check(amount);
  app.add_flag("--save-best", o.save_best, "Keep the checkpoint of the best epoch in the folder best of --save")
      ->needs("--save");
  app.add_option("--average", o.average,
                 "Decay of a moving average of the weights, which is then tested and exported; 0: no average [0]")
      ->check(number_in(0, 0.9999999));
  app.add_flag("--partial", o.partial, "With --init-from: load the weights that fit, and list the others")
      ->needs("--init-from");
  app.add_option(
      "--resume", o.resume,
      "Continue from the newest checkpoint in this folder. auto, or the folder of --save: continue if --save "
      "has a checkpoint of this recipe, else start, so that one command starts and restarts a run. Only rank "
      "0 reads it");
  app.add_option("--log", o.log, "Write a log of the run to this file, as JSON lines");
  app.add_option("--plot", o.plot,
                 "Write a plot of test accuracy (gpt, lstm: perplexity) and train loss by epoch to this SVG file");
  app.add_option("--trace", o.trace, "Write a timeline to this file, in Chrome's trace-event format, for Perfetto");
  app.add_option("--backend", o.backend,
                 "Transport between ranks: host (shared memory or TCP; alias gloo), mpi (under mpirun), nccl (needs "
                 "one GPU per rank), or auto (nccl if possible, else host)")
      ->check(CLI::IsMember({"auto", "host", "gloo", "mpi", "nccl"}))
      ->capture_default_str();
  app.add_option("--timeout", o.timeout_seconds,
                 "Seconds without a sign of life after which a rank counts as lost [LOCKSTEP_TIMEOUT, which `launch "
                 "--timeout` sets, or 60]");
  app.add_option("--weights-log", o.weights_log,
                 "Write the SHA-256 of every parameter and buffer after each step to this file, as JSON lines");
  // Used by `lockstep verify`.
  app.add_option("--inject-flip", o.inject_flip)->group("");
}

void TrainOptions::choose_defaults(const CLI::App& app) {
  CommonOptions::choose_defaults(app);
  if (is_language_model()) {
    if (!is_given(app, "--optimizer")) optimizer = "adamw";
    if (!is_given(app, "--lr")) lr = 0.001;
    if (!is_given(app, "--clip")) clip = 1;
  }
  if (!inject_flip.empty() && weights_log.empty()) throw UsageError("--inject-flip: only with --weights-log");
  for (const char* name : {"--watch", "--min-delta"}) {
    if (patience == 0 && !save_best && is_given(app, name)) {
      throw UsageError(fmt::format("{}: only with --patience or --save-best{}", name,
                                   is_given(app, "--patience") ? "; --patience 0 watches nothing" : ""));
    }
  }
  check_watch();
  if (momentum != 0 && optimizer != "sgd") {
    notices.push_back(fmt::format("--momentum changes nothing: the optimizer is {}", optimizer));
    momentum = 0;
  }
  if (sync_bn && !has_batch_norm()) {
    notices.push_back(fmt::format("--sync-bn changes nothing: the model {} has no batch norm", model));
    sync_bn = false;
  }
}

// A table has no best value.
void TrainOptions::check_watch() const {
  if (watch.empty()) return;
  std::vector<std::string> names{"train_loss", "accuracy"};
  constexpr std::int64_t kManyClasses = std::int64_t{1} << 40;  // the data are not loaded yet
  for (const Metric& m : make_metrics(*this, kManyClasses)) {
    if (!m.table && m.name != "accuracy") names.push_back(m.name);
  }
  if (std::ranges::find(names, watch) != names.end()) return;
  throw UsageError(
      fmt::format("--watch {}: expected one of {} (--metrics adds others)", watch, fmt::join(names, ", ")));
}

bool TrainOptions::has_batch_norm() const {
  const auto net = build_model(*this, 10);
  return std::ranges::any_of(net->named_modules(), [](const auto& entry) {
    return dynamic_cast<const BatchNorm2d*>(entry.second) != nullptr;
  });
}

std::pair<std::int64_t, std::string> TrainOptions::flip() const {
  if (inject_flip.empty()) return {0, ""};
  std::size_t colon = inject_flip.find(':');
  if (colon == std::string::npos) {
    throw UsageError(fmt::format("--inject-flip {}: expected STEP:PARAMETER, for example 2:fc.weight", inject_flip));
  }
  try {
    return {parse_integer("--inject-flip: the step", inject_flip.substr(0, colon), 1, std::int64_t{1} << 40),
            inject_flip.substr(colon + 1)};
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

Balance parse_balance(const std::string& text, int devices) {
  try {
    Balance balance = Balance::parse(text);
    const auto weights = std::ssize(balance.weights);
    check(devices == 0 || weights == 0 || weights == devices, "{} weight{} for {} device{}, expected one for each",
          weights, weights == 1 ? "" : "s", devices, devices == 1 ? "" : "s");
    return balance;
  } catch (const Error& error) {
    throw UsageError(fmt::format("--balance {}: {}", text, error.what()));
  }
}

std::unique_ptr<Optimizer> TrainOptions::make_optimizer(std::vector<Parameter> parameters) const {
  const TrainOptions& o = *this;
  if (o.optimizer == "sgd") {
    return std::make_unique<Sgd>(std::move(parameters),
                                 SgdOptions{.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay});
  }
  AdamOptions adam{.lr = o.lr, .weight_decay = o.weight_decay};
  if (o.optimizer == "adam") return std::make_unique<Adam>(std::move(parameters), adam);
  return std::make_unique<AdamW>(std::move(parameters), adam);
}

TrainerOptions TrainOptions::trainer_options(const ToolJob& job) const {
  const TrainOptions& o = *this;
  if (o.batch_size % o.accumulate != 0) {
    throw UsageError(fmt::format("--accumulate {}: does not divide --batch-size {}", o.accumulate, o.batch_size));
  }
  if (o.loss_scale && o.dtype != "f16") throw UsageError("--loss-scale: only with --dtype f16");
  TrainerOptions t{.devices = job.devices(),
                   .communicator = job.communicator(),
                   .split = {.shards = job.shards, .balance = parse_balance(o.balance, job.devices_of_ranks)},
                   .batch_size = o.batch_size,
                   .accumulate = o.accumulate,
                   .record_steps = o.record_steps,
                   .epochs = o.epochs,
                   .max_steps = o.max_steps,
                   .shuffle = !o.no_shuffle,
                   .seed = o.seed,
                   .dtype = job.dtype,
                   .gradients = o.gradients == "bf16" ? DType::bf16 : DType::f32,
                   .loss = make_loss(o, o.label_smoothing),
                   .label_smoothing = o.label_smoothing,
                   .clip_norm = o.clip,
                   .save_folder = o.save,
                   .save_every = o.save_every,
                   .keep_checkpoints = o.keep,
                   .average_decay = o.average};
  if (o.patience > 0 || o.save_best) {
    const std::string metric = !o.watch.empty() ? o.watch : o.is_language_model() ? "perplexity" : "accuracy";
    t.watch = {.metric = metric, .min_delta = o.min_delta, .patience = o.patience, .save_best = o.save_best};
  }
  t.schedule.kind = o.schedule == "step"     ? ScheduleKind::step
                    : o.schedule == "cosine" ? ScheduleKind::cosine
                                             : ScheduleKind::constant;
  t.schedule.warmup = o.warmup;
  if (o.loss_scale) t.loss_scaling.initial_scale = *o.loss_scale;
  t.recipe = {{"model", o.model},
              {"optimizer", o.optimizer},
              {"momentum", o.momentum},
              {"weight_decay", o.weight_decay},
              {"sync_bn", o.sync_bn}};
  if (o.is_language_model()) {
    t.recipe.update({{"context", o.context}, {"layers", o.layers}, {"width", o.width}, {"dropout", o.dropout}});
    if (o.model == "gpt") t.recipe.set("heads", o.heads);
  }
  if (!o.start_weights.empty()) t.recipe.set("init_from", o.start_weights);
  return t;
}

}  // namespace lockstep::app
