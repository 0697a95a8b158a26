#include "apps/lockstep/options/option_row.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/option_error.h"
#include "lockstep/models/models.h"

namespace lockstep::app {
namespace {

using O = TrainOptions;

constexpr std::int64_t kMost = std::int64_t{1} << 40;

CLI::Validator from(std::int64_t low, std::int64_t high) { return CLI::Range(low, high); }

// Without this check, CLI11 would round an out-of-range number to the nearest 64-bit number.
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

struct OptionGroup {
  std::string name;
  std::vector<OptionRow> rows;
};

// Returns the struct in TrainOptions that has a field of this class.
TrainOptions& part_of(TrainOptions& o, const CommonOptions* /*of*/) { return o; }
TrainOptions& part_of(TrainOptions& o, const TrainOptions* /*of*/) { return o; }
TrainerOptions& part_of(TrainOptions& o, const TrainerOptions* /*of*/) { return o.trainer; }
ReceiptOptions& part_of(TrainOptions& o, const ReceiptOptions* /*of*/) { return o.trainer.receipt; }
ScheduleOptions& part_of(TrainOptions& o, const ScheduleOptions* /*of*/) { return o.trainer.schedule; }
SplitOptions& part_of(TrainOptions& o, const SplitOptions* /*of*/) { return o.trainer.split; }
TensorBoardLogOptions& part_of(TrainOptions& o, const TensorBoardLogOptions* /*of*/) { return o.trainer.tensorboard; }
WatchOptions& part_of(TrainOptions& o, const WatchOptions* /*of*/) { return o.trainer.watch; }
DataOptions& part_of(TrainOptions& o, const DataOptions* /*of*/) { return o.reading; }
AugmentOptions& part_of(TrainOptions& o, const AugmentOptions* /*of*/) { return o.reading.transforms; }
TaskModel& part_of(TrainOptions& o, const TaskModel* /*of*/) { return o.model; }

std::string_view prefix_of(For only) {
  switch (only) {
    case For::tables: return "Tables: ";
    case For::own_pictures:
    case For::pictures: return "Pictures: ";
    case For::texts: return "gpt, lstm: ";
    case For::gpt: return "gpt: ";
    default: return "";
  }
}

std::string name_of(const std::filesystem::path& path) { return path.string(); }
std::string name_of(Augment value) { return std::string(augment_name(value)); }
template <typename T>
std::string name_of(const T& value) {
  if constexpr (requires { value.has_value(); }) {
    return value ? name_of(*value) : "";
  } else {
    return std::string(name(value));
  }
}

void set(DType& value, const std::string& text) {
  value = text == name(DType::bf16) ? DType::bf16 : text == name(DType::f16) ? DType::f16 : DType::f32;
}
void set(Augment& value, const std::string& name) { value = parse_augment(name); }
void set(std::optional<DataFormat>& value, const std::string& name) { value = parse_data_format(name); }
void set(std::optional<TaskKind>& value, const std::string& name) { value = parse_task_kind(name); }
void set(std::filesystem::path& value, const std::string& text) { value = text; }

template <typename Struct, typename T>
OptionRow row(std::string name, T Struct::*field, const std::string& help, OptionExtras extras = {}) {
  const FieldOf<T> found = [field](TrainOptions& o) -> T& { return part_of(o, static_cast<Struct*>(nullptr)).*field; };
  OptionField any;
  if constexpr (requires { any = found; }) {
    any = found;
  } else {
    any = NamedField{[found](TrainOptions& o) { return name_of(found(o)); },
                     [found](TrainOptions& o, const std::string& text) { set(found(o), text); }};
  }
  return {std::move(name), any, fmt::format("{}{}", prefix_of(extras.only), help), std::move(extras)};
}

// Validates one number of a list.
CLI::Validator element(double low, double high, const char* expected) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool fits =
            parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value >= low && value <= high;
        return fits ? std::string() : fmt::format("found '{}', expected {}", text, expected);
      },
      "");
}

std::vector<OptionGroup> make_groups() {
  std::vector<std::string> models = model_names();
  models.insert(models.end(), {"torchvision:resnet18", "torchvision:resnet34", "torchvision:resnet50", "gpt", "lstm"});
  const CLI::Validator size = from(1, 1 << 20), steps = from(0, kMost), amount = number_in(0, 1e9);
  constexpr double kAny = std::numeric_limits<double>::max();
  const CLI::Validator number = element(-kAny, kAny, "numbers such as 0.5,0.25");
  const std::string itself = "sets {} itself: give ", log = "sets {} itself, and reads the log";
  const std::string one_file = "takes no {}: each layout would replace the file";
  const std::string hashes = "takes no {}: it prints hashes alone";
  const std::string all_steps = "takes no {}: every layout makes all steps";
  const std::string nothing_kept = "takes no {}: it keeps no checkpoints";
  return {
      {"Model",
       {row("--model", &TaskModel::name,
            "resnet18, lenet, mlp: small images; torchvision:resnet18, torchvision:resnet34, torchvision:resnet50: "
            "large ones; gpt, lstm: text, character by character",
            {.check = CLI::IsMember(models)}),
        row("--context", &DataOptions::context, "characters per example", {For::texts, size}),
        row("--layers", &TaskModel::layers, "number of layers", {.only = For::texts, .check = size, .lstm = "2"}),
        row("--heads", &TaskModel::heads, "number of attention heads; must divide --width", {For::gpt, size}),
        row("--width", &TaskModel::width, "number of features of each layer", {For::texts, size}),
        row("--dropout", &TaskModel::dropout, "dropout probability", {For::texts, number_in(0, 0.99)}),
        row("--hidden", &TaskModel::hidden,
            "mlp on data of your own: units of the hidden layers [pictures: 256; rows: 256,128]",
            {.only = For::own_data, .check = element(1, 1 << 20, "numbers of units such as 256,128"), .value = "LIST"}),
        row("--sync-bn", &O::sync_bn, "Synchronized batch norm: statistics over the whole batch instead of each shard"),
        row("--init-from", &O::init_from,
            "Load the weights from this safetensors file, checkpoint, or folder of checkpoints (the newest). If it has "
            "another number of classes, the last layer starts anew",
            {.check = CLI::ExistingPath, .value = "PATH"}),
        row("--freeze", &O::freeze,
            "Train only the other parameters: backbone (all but the last layer), or names such as layer1, "
            "comma-separated. Batch norms of frozen parts keep their statistics [none]",
            {.only = For::other_than_texts, .value = "NAMES"}),
        row("--partial", &O::partial, "With --init-from: load the weights that fit, and list the others",
            {.needs = "--init-from"}),
        row("--summary", &O::summary, "Print a table of the model's layers first", {.refused = hashes})}},
      {"Data",
       {row("--data", &O::data,
            "Your data: a folder of pictures, a table (.csv, .tsv), arrays (.npy, .npz, .safetensors), CIFAR or IDX "
            "files, a text [Fashion-MNIST, in LOCKSTEP_DATA or the Debian package's folder]",
            {.value = "PATH"}),
        row("--format", &DataOptions::format,
            fmt::format("What --data is: {}; images: a folder for each class [found out]",
                        fmt::join(kDataFormatNames, ", ")),
            {For::files, CLI::IsMember(std::vector<std::string>(kDataFormatNames.begin(), kDataFormatNames.end()))}),
        row("--target", &DataOptions::target, "the column to predict [the last one]",
            {.only = For::tables, .value = "COLUMN"}),
        row("--ignore", &DataOptions::ignore, "columns to leave out, comma-separated [none]",
            {.only = For::tables, .value = "COLUMNS"}),
        row("--categories", &DataOptions::categories,
            "columns whose numbers are categories, comma-separated [columns with text]",
            {.only = For::tables, .value = "COLUMNS"}),
        row("--task", &DataOptions::task, "What to predict: a class, or numbers [by the target]",
            {For::own_data, CLI::IsMember({"classification", "regression"})}),
        row("--val-split", &DataOptions::val_split,
            "Share of the examples for tests, chosen by a hash of each example, if the data have no part for it",
            {For::own_data, number_in(0.001, 0.9)}),
        row("--header", &O::header, "whether the first line has the columns' names",
            {For::tables, CLI::IsMember({"auto", "yes", "no"})}),
        row("--delimiter", &O::delimiter, "the character between cells, or tab [found out]",
            {.only = For::tables, .value = "CHAR"}),
        row("--augment", &DataOptions::augment,
            "how much training examples change at random in each epoch; docs/your-data.md lists the changes",
            {For::pictures, CLI::IsMember({"none", "light", "standard"})}),
        row("--random-resized-crop", &AugmentOptions::resized_crop,
            "a random window of this part of the area to all of it, resized [off]", {For::pictures, number_in(0, 1)}),
        row("--random-crop", &AugmentOptions::crop_padding,
            "shift at random, after so many pixels of padding on each side [off]", {For::pictures, from(0, 4096)}),
        row("--flip", &AugmentOptions::flip, "probability of swapping left and right [0]",
            {For::pictures, number_in(0, 1)}),
        row("--vertical-flip", &AugmentOptions::vertical_flip, "probability of swapping top and bottom [0]",
            {For::pictures, number_in(0, 1)}),
        row("--rotation", &AugmentOptions::rotation, "turn by up to so many degrees to either side [0]",
            {For::pictures, number_in(0, 180)}),
        row("--color-jitter", &O::color_jitter,
            "change brightness, contrast, saturation, and hue by factors up to 1 + these, such as "
            "0.2,0.2,0.2,0.02 (the last at most 0.5) [off]",
            {.only = For::pictures, .check = number, .value = "B,C,S,H"}),
        row("--random-erasing", &AugmentOptions::erasing,
            "probability of painting over a random rectangle (cutout) [0]", {For::pictures, number_in(0, 1)}),
        row("--mixup", &O::mixup,
            "Pictures with classes: mix each with the one before it in the batch; the parts follow Beta(X, X). 0: off",
            {.check = number_in(0, 1000)}),
        row("--cutmix", &O::cutmix, "The same, but a rectangle shows the other picture. 0: off",
            {.check = number_in(0, 1000)}),
        row("--normalize", &O::normalize,
            "(x - mean) / standard deviation of each channel. training: those of the training part; "
            "imagenet: "
            "torchvision's; none: x stays in 0 to 1; auto: training for files, none for arrays of bytes",
            {For::pictures, CLI::IsMember({"auto", "training", "imagenet", "none"})}),
        row("--mean", &DataOptions::mean, "normalize by this mean of each channel instead, with x in 0 to 1 [off]",
            {.only = For::pictures, .check = number, .value = "LIST"}),
        row("--std", &DataOptions::stddev, "and by this standard deviation [off]",
            {.only = For::pictures, .check = number, .value = "LIST"}),
        row("--image-size", &DataOptions::image_size,
            "the edge of the square that all become, in pixels [their own size, or the shortest edge of all, "
            "rounded up to a multiple of 32, up to 224]",
            {For::own_pictures, from(1, 4096)}),
        row("--skip-broken", &DataOptions::skip_broken, "Leave out and count rows and pictures that cannot be read",
            {For::own_data}),
        row("--max-pixels", &DataOptions::max_pixels,
            "read those of up to so many pixels, however small their files are [178956970, and no more than "
            "the file's size makes likely]",
            {For::own_pictures, from(1, kMost)}),
        row("--hash-data", &DataOptions::hash_data,
            "The recipe gets a hash of all contents, instead of names and sizes where contents are many files",
            {For::own_data}),
        row("--limit-train", &DataOptions::limit_train, "Use only the first N training examples [all]",
            {.check = from(1, kMost)}),
        row("--limit-test", &DataOptions::limit_validation, "Use only the first N test examples [all]",
            {.check = from(1, kMost)}),
        row("--no-shuffle", &TrainerOptions::shuffle, "Train on the examples in the order of the files",
            {.entry = "shuffle"}),
        row("--metrics", &O::metrics,
            "Also measure these on the test data, comma-separated: top5_accuracy (or another number), perplexity, "
            "confusion_matrix [none; gpt, lstm: perplexity]",
            {.only = For::labels, .refused = hashes})}},
      {"Training",
       {row("--epochs", &TrainerOptions::epochs,
            "Passes over the training data [10; data of your own: 1000 steps, but 10 to 100 passes]",
            {.check = steps, .refused = itself + "--steps"}),
        row("--max-steps", &TrainerOptions::max_steps, "End the run after N steps; 0: no limit",
            {.check = steps, .refused = itself + "--steps"}),
        row("--batch-size", &TrainerOptions::batch_size,
            "Examples per batch, over all devices and ranks [256; gpt, lstm, data of your own: 32]",
            {.check = from(1, 1 << 24), .language_model = "32"}),
        row("--accumulate", &TrainerOptions::accumulate, "Micro-batches per step; must divide the batch size",
            {.check = from(1, 1 << 24)}),
        row("--drop-last", &TrainerOptions::drop_last,
            "Leave out each epoch's last batch if it is not full, which batch norm may not take"),
        row("--optimizer", &O::optimizer, "Optimizer [sgd; gpt, lstm: adamw; data of your own: adam]",
            {.check = CLI::IsMember(optimizer_names()), .language_model = "adamw"}),
        row("--lr", &O::lr, "Learning rate [0.1; gpt, lstm: 0.001; data of your own: 0.001, sgd: 0.01]",
            {.check = amount, .language_model = "0.001", .entry = "learning_rate"}),
        row("--head-lr", &O::head_lr, "Learning rate of the last layer, which a schedule scales, too [that of --lr]",
            {For::other_than_texts, amount}),
        row("--momentum", &O::momentum, "rmsprop, sgd: momentum", {.check = number_in(0, 1)}),
        row("--weight-decay", &O::weight_decay, "Weight decay; adamw: decoupled", {.check = amount}),
        row("--schedule", &O::schedule,
            "Learning rate after the warm-up; step: times 0.1 after each third of the steps; cosine: down to 0",
            {.check = CLI::IsMember({"constant", "step", "cosine"})}),
        row("--warmup", &ScheduleOptions::warmup, "Steps in which the learning rate rises linearly to --lr",
            {.check = steps}),
        row("--clip", &TrainerOptions::clip_norm, "Clip the norm of all gradients together to this; 0: no limit",
            {.check = amount, .language_model = "1", .entry = "clip_norm"}),
        row("--label-smoothing", &TrainerOptions::label_smoothing, "Fraction of each target to spread over all classes",
            {For::labels, number_in(0, 1)}),
        row("--class-weights", &O::class_weights,
            "balanced: rare classes count more in the loss, by examples / (classes * examples of the class)",
            {For::classes, CLI::IsMember({"none", "balanced"})}),
        row("--average", &TrainerOptions::average_decay,
            "Decay of a moving average of the weights, which is then tested and exported; 0: no average",
            {.check = number_in(0, 0.9999999), .entry = "average_decay"}),
        row("--watch", &WatchOptions::metric,
            "Metric for --patience and --save-best: accuracy, train_loss, or one of --metrics [accuracy; gpt, lstm: "
            "perplexity]",
            {.value = "NAME", .refused = all_steps}),
        row("--patience", &WatchOptions::patience,
            "End the run after N epochs without a better value of --watch; 0: never",
            {.check = steps, .refused = all_steps}),
        row("--min-delta", &WatchOptions::min_delta, "Smallest change of --watch that counts as better",
            {.check = amount, .refused = all_steps})}},
      {"Devices",
       {row("--devices", &O::devices,
            "A list, such as cpu:0,cpu:1 or cuda:0/0,cuda:0/1 (logical devices of a GPU); cpu or cuda: only that "
            "kind; auto: GPUs if there are any, otherwise CPU devices",
            {.value = "LIST", .refused = "takes no {}: --layouts says how many there are"}),
        row("--num-devices", &O::num_devices,
            "Number of devices, of the kind that --devices selects; CPU devices split the cores evenly [all GPUs, or "
            "1 CPU device]",
            {.check = from(1, 1024), .refused = itself + "--layouts"}),
        row("--cores-per-device", &O::cores_per_device, "Cores per CPU device [all cores, split evenly]",
            {.check = from(1, 4096)}),
        row("--threads-per-shard", &O::threads_per_shard,
            "T: CPU threads that compute one shard [f32, f16: as many as the cores allow, with the same bits; bf16: "
            "1, part of the recipe]",
            {.check = from(1, 1024)}),
        row("--workers", &TrainerOptions::workers,
            "CPU threads that load data ahead of use; does not change the bits [pictures in files: one for each core, "
            "at most 8; other data: 1]",
            {.check = from(1, 256)}),
        row("--balance", &O::balance,
            "Shards per device: equal; auto (by speed, measured every 20 steps); or one weight per device, rank 0's "
            "first, such as 2,1. Does not change the bits",
            {.value = "LIST"}),
        row("--record-steps", &TrainerOptions::record_steps,
            "Record a step once and repeat it, as a CUDA graph on GPUs; does not change the bits"),
        row("--backend", &O::backend,
            "Transport between ranks: host (shared memory or TCP; alias gloo), mpi (under mpirun), nccl (needs one "
            "GPU per rank), or auto (nccl if possible, else host)",
            {.check = CLI::IsMember({"auto", "host", "gloo", "mpi", "nccl"})}),
        row("--timeout", &O::timeout_seconds,
            "Seconds without a sign of life after which a rank counts as lost [LOCKSTEP_TIMEOUT, which `launch "
            "--timeout` sets, or 60]")}},
      {"Bits",
       {row("--seed", &O::seed, "Seed of initial weights, data order, and dropout", {.check = unsigned_integer()}),
        row("--shards", &SplitOptions::shards,
            "V: number of shards per batch; decides the bits [CPUs: the largest power of two from 1 to 8 that leaves "
            "16 images or 2 texts per shard; GPUs: one per device]",
            {.check = from(1, 65536)}),
        row("--dtype", &TrainerOptions::dtype, "Number format that layers compute in; master weights stay f32",
            {.check = CLI::IsMember({"f32", "bf16", "f16"})}),
        row("--gradients", &TrainerOptions::gradients,
            "Number format of gradients when they are summed and sent between ranks",
            {.check = CLI::IsMember({"f32", "bf16"})}),
        row("--loss-scale", &O::loss_scale,
            "f16: initial loss scale, a power of two; halved when gradients overflow, doubled after 2000 steps "
            "without overflow [65536]",
            {.check = power_of_two()}),
        row("--tf32", &O::tf32, "Multiply f32 on GPUs in TF32, with a mantissa of 10 bits; changes the bits"),
        row("--direct-conv", &O::direct_conv,
            "Never use Winograd's algorithm for f32 convolutions on CPUs; slower, changes the bits")}},
      {"Checkpoints",
       {row("--save", &O::save, "Write checkpoints to this folder",
            {.value = "DIR", .refused = "takes no {}: it trains a few steps and keeps no checkpoints"}),
        row("--save-every", &TrainerOptions::save_every, "Steps between checkpoints [one after each epoch]",
            {.check = steps, .needs = "--save", .refused = nothing_kept}),
        row("--keep", &TrainerOptions::keep_checkpoints, "Number of newest checkpoints to keep",
            {.check = from(1, 1 << 20), .needs = "--save", .refused = nothing_kept}),
        row("--save-best", &WatchOptions::save_best,
            "Keep the checkpoint of the best epoch in the folder best of --save",
            {.needs = "--save", .refused = nothing_kept}),
        row("--resume", &O::resume,
            "Continue from the newest checkpoint in this folder. auto, or the folder of --save: continue if --save "
            "has a checkpoint of this recipe, else start, so that one command starts and restarts a run. Only rank "
            "0 reads it",
            {.value = "DIR", .refused = "takes no {}: every layout starts with the initial weights"})}},
      {"Output",
       {row("--log", &O::log, "Write a log of the run to this file, as JSON lines", {.value = "FILE", .refused = log}),
        row("--plot", &O::plot,
            "Write a plot of test accuracy (gpt, lstm: perplexity) and train loss by epoch to this SVG file",
            {.value = "FILE", .refused = one_file}),
        row("--report", &O::report,
            "Write a page about the run to report.html in this folder: curves, results, worst examples, timeline, "
            "model, recipe. none: no page [the folder --save]",
            {.value = "DIR", .refused = one_file}),
        row("--report-origin", &O::report_origin,
            "Let the page name the host and show the command line, for readers who may know them"),
        row("--receipt", &O::receipt,
            "Write a receipt of the run to this file, with which `audit` can check any step: recipe, digests of data, "
            "a chain of hashes over the steps. none: no receipt [receipt.json in the folder --save]",
            {.value = "FILE", .refused = one_file}),
        row("--receipt-every", &ReceiptOptions::every, "Steps between two links of the receipt's chain",
            {.check = from(1, kMost), .refused = one_file}),
        row("--sign-key", &ReceiptOptions::sign_key, "Sign the receipt with this Ed25519 key, in PEM [no signature]",
            {.check = CLI::ExistingFile, .refused = one_file}),
        row("--metrics-file", &O::metrics_file,
            "Write how the run is doing to this file, as text for Prometheus, at most once a second; rank 1 writes "
            "FILE with .rank1 before its extension",
            {.value = "FILE", .refused = one_file}),
        row("--tensorboard", &TensorBoardLogOptions::folder,
            "Write a file for TensorBoard into this folder: loss, rate, and speed of each step, results of each epoch",
            {.value = "DIR", .refused = log}),
        row("--histograms", &TensorBoardLogOptions::histogram_every,
            "Steps between histograms of all weights and gradients in the file of --tensorboard [none]",
            {.check = steps, .needs = "--tensorboard", .refused = log}),
        row("--export", &O::export_file, "Write the final weights and buffers to this safetensors file",
            {.value = "FILE", .refused = one_file}),
        row("--trace", &O::trace, "Write a timeline to this file, in Chrome's trace-event format, for Perfetto",
            {.value = "FILE", .refused = one_file}),
        row("--find-lr", &O::find_lr,
            "Instead of training: make N steps (100 is usual) with rates that rise from 1e-7 to 1, and suggest --lr: "
            "where the loss falls most steeply. --log and --plot get the curve [off]",
            {.check = from(10, 1 << 20), .refused = hashes}),
        row("--dry-run", &O::dry_run, "Say what the run would be, and train nothing", {.refused = hashes}),
        row("--weights-log", &O::weights_log,
            "Write the SHA-256 of every parameter and buffer after each step to this file, as JSON lines",
            {.value = "FILE", .refused = log})}},
      // `lockstep verify` uses it.
      {"", {row("--inject-flip", &O::inject_flip, "", {.value = "STEP:PARAMETER"})}},
  };
}

const OptionRow* find_row(const auto& matches) {
  const auto found = std::ranges::find_if(option_rows(), matches);
  return found == option_rows().end() ? nullptr : &*found;
}

}  // namespace

const std::vector<OptionRow>& option_rows() {
  static const std::vector<OptionRow> rows = [] {
    std::vector<OptionRow> all;
    for (const OptionGroup& group : make_groups()) {
      for (const OptionRow& row : group.rows) all.emplace_back(row).group = group.name;
    }
    return all;
  }();
  return rows;
}

const OptionRow* find_option_row(std::string_view name) {
  return find_row([&](const OptionRow& row) { return row.name == name; });
}

const OptionRow* find_option_of_entry(const std::string& entry) {
  std::string name = "--" + entry;
  std::ranges::replace(name, '_', '-');
  return find_row(
      [&](const OptionRow& row) { return row.extras.entry.empty() ? row.name == name : row.extras.entry == entry; });
}

bool OptionRow::decides_result() const {
  return (group == "Model" || group == "Data" || group == "Training" || group == "Bits") && name != "--summary";
}

bool fits(For only, const TrainOptions& o) {
  const bool text = o.is_language_model(), numbers = o.is_regression();
  switch (only) {
    case For::all: return true;
    case For::files: return o.own_data || text;
    case For::own_data:
    case For::tables:
    case For::own_pictures: return o.own_data;
    case For::pictures: return !text;
    case For::texts: return text;
    case For::gpt: return o.model.name == "gpt";
    case For::other_than_texts: return !text;
    case For::labels: return !numbers;
    case For::classes: return !text && !numbers;
  }
  fail("option for {}, expected data or a model", static_cast<int>(only));
}

void check_fits(const OptionRow& row, const TrainOptions& o, const std::string& why_not_own) {
  const For only = row.extras.only;
  if (fits(only, o)) return;
  std::string where = fmt::format("not with --model {}", o.model.name);
  if (only >= For::files && only <= For::pictures) {
    where = fmt::format("only with --data of pictures, tables, or arrays; {}", why_not_own);
  } else if (only == For::texts || only == For::gpt) {
    where = fmt::format("only with --model gpt{}, not {}", only == For::texts ? " or lstm" : "", o.model.name);
  } else if (o.is_regression()) {
    where = fmt::format("only for classes; {} has numbers to predict", o.data);
  }
  throw UsageError(fmt::format("{}: {}", row.name, where));
}

std::string message_of(const std::exception& error) {
  // Fields that are not named like an option, and what sets them.
  constexpr std::pair<std::string_view, const char*> kOthers[] = {
      {"allow_empty", "--skip-broken"},          {"unseen", "--unseen missing"},
      {"convert_sync_batchnorm()", "--sync-bn"}, {"stddev", "--std"},
      {"normalization", "--normalize"},
  };
  const auto* const named = dynamic_cast<const OptionError*>(&error);
  if (!named) return error.what();
  return named->with_names([&](const std::string& field) -> std::string {
    const auto other = std::ranges::find(kOthers, field, [](const auto& o) { return o.first; });
    const OptionRow* const row = find_option_of_entry(field);
    return other != std::end(kOthers) ? other->second : row ? row->name : field;
  });
}

}  // namespace lockstep::app
