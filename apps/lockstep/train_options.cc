#include "train_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <type_traits>

#include "learning_task.h"
#include "lockstep/base/environment.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/sgd.h"
#include "option_row.h"

namespace lockstep::app {
namespace {

using Parameters = std::vector<Parameter>;

struct OptimizerRow {
  const char* name;
  bool has_momentum;
  std::unique_ptr<Optimizer> (*make)(Parameters parameters, const TrainOptions& o);
};

constexpr OptimizerRow kOptimizers[] = {
    {"sgd", true,
     [](Parameters parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       const SgdOptions options{.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay};
       return std::make_unique<Sgd>(std::move(parameters), options);
     }},
    {"adam", false,
     [](Parameters parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       return std::make_unique<Adam>(std::move(parameters), AdamOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"adamw", false,
     [](Parameters parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       return std::make_unique<AdamW>(std::move(parameters), AdamOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"rmsprop", true, [](Parameters parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       const RMSpropOptions options{.lr = o.lr, .weight_decay = o.weight_decay, .momentum = o.momentum};
       return std::make_unique<RMSprop>(std::move(parameters), options);
     }}};

void set_field(TrainOptions& o, const OptionRow& row, const std::string& text) {
  std::istringstream in(text);
  std::visit(
      [&](auto field) {
        if constexpr (requires { in >> o.*field; }) in >> o.*field;
      },
      row.field);
}

const OptimizerRow& optimizer_row(const TrainOptions& o) {
  return *std::ranges::find_if(kOptimizers, [&](const OptimizerRow& row) { return row.name == o.optimizer; });
}

void add_row(CLI::App& app, TrainOptions& o, const OptionRow& row) {
  const OptionExtras& extras = row.extras;
  CLI::Option* option = std::visit(
      [&](auto field) {
        if constexpr (std::is_same_v<decltype(field), bool TrainOptions::*>) {
          return app.add_flag(row.name, o.*field, row.help);
        } else {
          CLI::Option* added = app.add_option(row.name, o.*field, row.help);
          if (std::is_same_v<decltype(field), std::vector<std::string> TrainOptions::*>) added->delimiter(',');
          return added;
        }
      },
      row.field);
  if (extras.check) option->check(*extras.check);
  if (!extras.needs.empty()) option->needs(app.get_option(extras.needs));
  if (row.is_flag() || row.help.ends_with(']')) return;
  option->capture_default_str();
  const std::string own = option->get_default_str();
  if (!extras.lstm.empty()) option->default_str(fmt::format("gpt: {}; lstm: {}", own, extras.lstm));
  if (!extras.language_model.empty() && extras.language_model != own) {
    option->default_str(fmt::format("{}; gpt, lstm: {}", own, extras.language_model));
  }
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : kOptimizers) names.emplace_back(row.name);
  return names;
}

void TrainOptions::add_to(CLI::App& app, const std::vector<std::string_view>& names) {
  for (const OptionRow& row : option_rows()) {
    if (names.empty() || std::ranges::find(names, row.name) != names.end()) add_row(app, *this, row);
  }
}

void TrainOptions::choose_defaults(const CLI::App& app) {
  if (direct_conv && !has_convolutions()) {
    notices.push_back(fmt::format("--direct-conv changes nothing: the model {} has no convolutions", model));
    direct_conv = false;
  }
  if (!is_language_model()) {
    for (const char* name : {"--context", "--layers", "--heads", "--width", "--dropout"}) {
      if (is_given(app, name)) throw UsageError(fmt::format("{}: only with --model gpt or lstm, not {}", name, model));
    }
  } else if (model != "gpt" && is_given(app, "--heads")) {
    throw UsageError(fmt::format("--heads: only with --model gpt, not {}", model));
  }
  if (is_language_model()) {
    for (const OptionRow& row : option_rows()) {
      const OptionExtras& extras = row.extras;
      const std::string& text = model == "lstm" && !extras.lstm.empty() ? extras.lstm : extras.language_model;
      if (!text.empty() && !is_given(app, row.name)) set_field(*this, row, text);
    }
  }
  if (!inject_flip.empty() && weights_log.empty()) throw UsageError("--inject-flip: only with --weights-log");
  for (const char* name : {"--watch", "--min-delta"}) {
    if (patience == 0 && !save_best && is_given(app, name)) {
      throw UsageError(fmt::format("{}: only with --patience or --save-best{}", name,
                                   is_given(app, "--patience") ? "; --patience 0 watches nothing" : ""));
    }
  }
  check_watch();
  if (momentum != 0 && !has_momentum()) {
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
  return optimizer_row(*this).make(std::move(parameters), *this);
}

bool TrainOptions::has_momentum() const { return optimizer_row(*this).has_momentum; }

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
                   .tensorboard = {.folder = o.tensorboard, .histogram_every = o.histograms},
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
