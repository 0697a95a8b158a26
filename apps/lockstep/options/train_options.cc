#include "apps/lockstep/options/train_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <type_traits>

#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/metrics.h"
#include "apps/lockstep/options/option_row.h"
#include "lockstep/base/environment.h"
#include "lockstep/data/transforms/mixup.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/optim/adadelta.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::app {
namespace {

struct OptimizerRow {
  const char* name;
  bool has_momentum;
  std::unique_ptr<Optimizer> (*make)(const ParameterGroups& parameters, const TrainOptions& o);
};

constexpr OptimizerRow kOptimizers[] = {
    {"sgd", true,
     [](const ParameterGroups& parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       const SgdOptions options{.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay};
       return std::make_unique<Sgd>(parameters, options);
     }},
    {"adam", false,
     [](const ParameterGroups& parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       return std::make_unique<Adam>(parameters, AdamOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"adamw", false,
     [](const ParameterGroups& parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"adagrad", false,
     [](const ParameterGroups& parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       return std::make_unique<Adagrad>(parameters, AdagradOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"adadelta", false,
     [](const ParameterGroups& parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       return std::make_unique<Adadelta>(parameters, AdadeltaOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"rmsprop", true, [](const ParameterGroups& parameters, const TrainOptions& o) -> std::unique_ptr<Optimizer> {
       const RMSpropOptions options{.lr = o.lr, .weight_decay = o.weight_decay, .momentum = o.momentum};
       return std::make_unique<RMSprop>(parameters, options);
     }}};

void set_field(TrainOptions& o, const OptionRow& row, const std::string& text) {
  std::istringstream in(text);
  std::visit(
      [&](const auto& field) {
        if constexpr (requires { in >> field(o); }) in >> field(o);
      },
      row.field);
}

const OptimizerRow& optimizer_row(const TrainOptions& o) {
  return *std::ranges::find_if(kOptimizers, [&](const OptimizerRow& row) { return row.name == o.optimizer; });
}

void add_row(CLI::App& app, TrainOptions& o, const OptionRow& row) {
  const OptionExtras& extras = row.extras;
  CLI::Option* option = std::visit(
      [&](const auto& field) -> CLI::Option* {
        if constexpr (requires { field.set; }) {
          const auto take = [&](const std::string& name) { field.set(o, name); };
          return app.add_option_function<std::string>(row.name, take, row.help)->default_function([&] {
            return field.name(o);
          });
        } else if constexpr (std::is_same_v<decltype(field(o)), bool&>) {
          return app.add_flag_function(
              row.name, [&value = field(o), set = !row.clears()](std::int64_t count) { value = (count > 0) == set; },
              row.help);
        } else {
          return app.add_option(row.name, field(o), row.help);
        }
      },
      row.field);
  if (row.is_list()) option->delimiter(',')->type_name(extras.value);
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

// Returns the number of epochs with about 1000 steps, so that small data are learned, too.
std::int64_t epochs_of(std::int64_t examples, std::int64_t batch) {
  constexpr std::int64_t kSteps = 1000, kFewest = 10, kMost = 100;
  const std::int64_t steps = std::max<std::int64_t>(1, (examples + batch - 1) / batch);
  return std::clamp((kSteps + steps - 1) / steps, kFewest, kMost);
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
  const std::string why_not_own = open_own_data(*this, app);
  if (own_data) fit_own_data(app);
  for (const OptionRow& row : option_rows()) {
    if (!is_given(app, row.name)) continue;
    check_fits(row, *this, why_not_own);
    given.push_back(row.name);
  }
  check_mixing();
  check_finder(app);
  if (direct_conv && !has_convolutions()) {
    notices.push_back(fmt::format("--direct-conv changes nothing: the model {} has no convolutions", model.name));
    direct_conv = false;
  }
  if (is_language_model()) {
    for (const OptionRow& row : option_rows()) {
      const OptionExtras& extras = row.extras;
      const std::string& text = model.name == "lstm" && !extras.lstm.empty() ? extras.lstm : extras.language_model;
      if (!text.empty() && !is_given(app, row.name)) set_field(*this, row, text);
    }
  }
  for (const char* name : {"--receipt-every", "--sign-key"}) {
    if (is_given(app, name) && receipt_options().file.empty()) {
      throw UsageError(fmt::format("{}: only with --receipt or --save", name));
    }
  }
  if (!inject_flip.empty() && weights_log.empty()) throw UsageError("--inject-flip: only with --weights-log");
  for (const char* name : {"--watch", "--min-delta"}) {
    if (trainer.watch.patience == 0 && !trainer.watch.save_best && is_given(app, name)) {
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
    notices.push_back(fmt::format("--sync-bn changes nothing: the model {} has no batch norm", model.name));
    sync_bn = false;
  }
}

// Chooses what the user left open, to fit the data.
void TrainOptions::fit_own_data(const CLI::App& app) {
  const DataSchema& schema = source->schema;
  if (is_given(app, "--val-split") && source->has_validation_part) {
    notices.push_back(fmt::format("--val-split changes nothing: {} has a part for tests", data));
    reading.val_split = DataOptions().val_split;
  }
  if (!is_given(app, "--model")) model.name = default_task_model(schema);
  try {
    make_task_model(schema, task_model(*this));
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(fmt::format("--model {}: {}", model.name, message_of(error)));
  }
  if (app.get_option_no_throw("--epochs") == nullptr) return;
  if (!is_given(app, "--batch-size")) trainer.batch_size = 32;
  if (!is_given(app, "--optimizer")) optimizer = "adam";
  if (!is_given(app, "--lr")) lr = optimizer == "sgd" ? 0.01 : 0.001;
  if (!is_given(app, "--epochs")) trainer.epochs = epochs_of(source->train->size(), trainer.batch_size);
}

void TrainOptions::check_mixing() const {
  if (mixup == 0 && cutmix == 0) return;
  const char* name = mixup > 0 ? "--mixup" : "--cutmix";
  constexpr double kLeast = 0.001;
  if (mixup > 0 && cutmix > 0) throw UsageError("--cutmix: not with --mixup");
  if (std::max(mixup, cutmix) < kLeast) throw UsageError(fmt::format("{}: expected 0.001 to 1000, or 0", name));
  if (is_language_model() || (source && source->schema.input.size() != 3) || is_regression()) {
    throw UsageError(fmt::format("{}: only for pictures with classes", name));
  }
  if (class_weights != "none") throw UsageError(fmt::format("{}: not with --class-weights", name));
}

// --watch must name a number: a table has no best value.
void TrainOptions::check_watch() const {
  const std::string& watch = trainer.watch.metric;
  if (watch.empty()) return;
  std::vector<std::string> names{"train_loss"};
  if (!is_regression()) names.emplace_back("accuracy");
  constexpr std::int64_t kManyClasses = std::int64_t{1} << 40;  // above any k, because the data are not loaded yet
  for (const Metric& m : make_metrics(*this, kManyClasses)) {
    if (!m.table && m.name != "accuracy") names.push_back(m.name);
  }
  if (std::ranges::find(names, watch) != names.end()) return;
  throw UsageError(
      fmt::format("--watch {}: expected one of {} (--metrics adds others)", watch, fmt::join(names, ", ")));
}

void TrainOptions::check_finder(const CLI::App& app) {
  if (find_lr == 0) return;
  for (const char* name : {"--save", "--resume", "--export", "--trace", "--tensorboard", "--weights-log", "--report",
                           "--metrics-file", "--receipt"}) {
    if (is_given(app, name)) throw UsageError(fmt::format("{}: not with --find-lr, which keeps nothing", name));
  }
  const char* other = dry_run                      ? "--dry-run"
                      : trainer.watch.patience > 0 ? "--patience"
                      : trainer.average_decay > 0  ? "--average"
                                                   : nullptr;
  if (other) throw UsageError(fmt::format("{}: not with --find-lr", other));
  for (const char* name : {"--lr", "--schedule", "--warmup", "--epochs", "--max-steps", "--metrics", "--watch"}) {
    // The head's rate keeps its ratio to --lr.
    if (head_lr && name == std::string_view("--lr")) continue;
    if (is_given(app, name)) notices.push_back(fmt::format("{} changes nothing with --find-lr", name));
  }
}

bool TrainOptions::has_batch_norm() const {
  const auto net = make_task_model(source ? source->schema : stand_in_schema(*this), task_model(*this));
  return std::ranges::any_of(net->named_modules(), [](const auto& entry) {
    return dynamic_cast<const BatchNorm2d*>(entry.second) != nullptr;
  });
}

std::string TrainOptions::default_watch() const {
  return is_language_model() ? "perplexity" : is_regression() ? "mean_absolute_error" : "accuracy";
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

std::unique_ptr<Optimizer> TrainOptions::make_optimizer(const ParameterGroups& parameters) const {
  return optimizer_row(*this).make(parameters, *this);
}

void TrainOptions::balance_classes(TrainerOptions& t, const std::vector<std::int64_t>& counts) const {
  // Balances as scikit-learn does: each class has the same share of the loss.
  double examples = 0, classes = 0;
  for (const std::int64_t count : counts) {
    examples += static_cast<double>(count);
    classes += count > 0 ? 1 : 0;
  }
  std::vector<float> weights;
  for (const std::int64_t count : counts) {
    weights.push_back(count > 0 ? static_cast<float>(examples / (classes * static_cast<double>(count))) : 0);
  }
  t.loss = [weight = Tensor::from(weights, {std::ssize(weights)}), smoothing = trainer.label_smoothing](
               const Tensor& logits, const Tensor& labels) {
    return cross_entropy(logits, labels, {.weight = weight, .label_smoothing = smoothing});
  };
  t.loss_weight = [weights](const Example& batch) {
    double sum = 0;
    for (const std::int64_t label : batch.back().to_vector<std::int64_t>()) {
      check(label >= 0 && label < std::ssize(weights), "--class-weights: label {}, expected 0 to {}", label,
            std::ssize(weights) - 1);
      sum += static_cast<double>(weights[static_cast<std::size_t>(label)]);
    }
    return sum;
  };
  t.recipe.set("label_smoothing", trainer.label_smoothing);
  t.label_smoothing = 0;
}

ReceiptOptions TrainOptions::receipt_options() const {
  if (receipt == "none" || (receipt.empty() && save.empty())) return {};
  ReceiptOptions options = trainer.receipt;
  options.file = receipt.empty() ? std::filesystem::path(save) / "receipt.json" : std::filesystem::path(receipt);
  return options;
}

bool TrainOptions::has_momentum() const { return optimizer_row(*this).has_momentum; }

void TrainOptions::mix_examples(TrainerOptions& t, std::int64_t classes) const {
  if (mixup > 0) t.batch_transform = MixUp({.classes = classes, .alpha = mixup});
  if (cutmix > 0) t.batch_transform = CutMix({.classes = classes, .alpha = cutmix});
}

TrainerOptions TrainOptions::trainer_options(const ToolJob& job) const {
  const TrainOptions& o = *this;
  if (o.trainer.batch_size % o.trainer.accumulate != 0) {
    throw UsageError(
        fmt::format("--accumulate {}: does not divide --batch-size {}", o.trainer.accumulate, o.trainer.batch_size));
  }
  if (o.loss_scale && o.trainer.dtype != DType::f16) throw UsageError("--loss-scale: only with --dtype f16");
  const DataSchema schema = o.source ? o.source->schema : stand_in_schema(o);
  TrainerOptions t = o.trainer;
  t.devices = job.devices();
  t.communicator = job.communicator();
  t.split = {.shards = job.shards, .balance = parse_balance(o.balance, job.devices_of_ranks)};
  if (t.workers == 0) t.workers = loader_threads(schema);
  t.seed = o.seed;
  t.dtype = job.dtype;
  t.loss = task_loss(schema, t.label_smoothing);
  t.save_folder = o.save;
  t.receipt = o.receipt_options();
  if (t.watch.patience == 0 && !t.watch.save_best)
    t.watch = {};
  else if (t.watch.metric.empty())
    t.watch.metric = o.default_watch();
  t.schedule.kind = o.schedule == "step"     ? ScheduleKind::step
                    : o.schedule == "cosine" ? ScheduleKind::cosine
                                             : ScheduleKind::constant;
  if (o.loss_scale) t.loss_scaling.initial_scale = *o.loss_scale;
  t.recipe = {{"model", o.model.name},
              {"optimizer", o.optimizer},
              {"momentum", o.momentum},
              {"weight_decay", o.weight_decay},
              {"sync_bn", o.sync_bn}};
  // A loss of the tool's own smooths the labels itself.
  if (t.loss) t.recipe.set("label_smoothing", std::exchange(t.label_smoothing, 0));
  if (o.is_language_model()) {
    t.recipe.update({{"context", o.reading.context},
                     {"layers", o.model.layers},
                     {"width", o.model.width},
                     {"dropout", o.model.dropout}});
    if (o.model.name == "gpt") t.recipe.set("heads", o.model.heads);
  }
  if (o.class_weights != "none") t.recipe.set("class_weights", o.class_weights);
  if (o.mixup > 0) t.recipe.set("mixup", o.mixup);
  if (o.cutmix > 0) t.recipe.set("cutmix", o.cutmix);
  // A text needs no schema, because there is one way to split and encode it.
  if (o.source && !o.is_language_model() && !is_plain_mnist(*o.source)) {
    t.recipe.set("schema", schema_hash(schema));
    t.recipe.set("val_split", o.reading.val_split);
  }
  if (o.source && !o.source->transforms.empty()) t.recipe.set("transforms", o.source->transforms);
  if (!o.model.hidden.empty()) t.recipe.set("hidden", fmt::format("{}", fmt::join(o.model.hidden, ",")));
  if (!o.start_weights.empty()) t.recipe.set("init_from", o.start_weights);
  return t;
}

}  // namespace lockstep::app
