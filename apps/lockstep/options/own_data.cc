#include "apps/lockstep/options/own_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "apps/lockstep/options/option_row.h"
#include "lockstep/base/sha256.h"
#include "lockstep/data/fashion_mnist.h"

namespace lockstep::app {
namespace {

void refuse_own_options(const CLI::App& app, const std::string& why, const std::vector<std::string>& allowed = {}) {
  for (const std::string& name : own_data_options()) {
    if (is_given(app, name) && std::ranges::find(allowed, name) == allowed.end()) {
      throw UsageError(fmt::format("{}: only with --data of pictures, tables, or arrays; {}", name, why));
    }
  }
}

std::vector<double> numbers_of(const char* option, const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    double value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !std::isfinite(value)) {
      throw UsageError(fmt::format("{}: found '{}', expected numbers such as 0.5,0.25", option, text));
    }
    numbers.push_back(value);
  }
  return numbers;
}

// Passes over the data that make about 1000 steps, so that small data are learned, too.
std::int64_t epochs_of(std::int64_t examples, std::int64_t batch) {
  constexpr std::int64_t kSteps = 1000, kFewest = 10, kMost = 100;
  const std::int64_t steps = std::max<std::int64_t>(1, (examples + batch - 1) / batch);
  return std::clamp((kSteps + steps - 1) / steps, kFewest, kMost);
}

}  // namespace

const std::vector<std::string>& own_data_options() {
  static const std::vector<std::string> names{"--format",    "--target",    "--ignore",      "--categories", "--task",
                                              "--val-split", "--hash-data", "--skip-broken", "--delimiter",  "--header",
                                              "--hidden",    "--augment",   "--image-size",  "--max-pixels"};
  static const std::vector<std::string> all = [] {
    std::vector<std::string> both = names;
    for (const std::string& name : picture_options()) {
      if (name != "--augment") both.push_back(name);
    }
    return both;
  }();
  return all;
}

const std::vector<std::string>& picture_options() {
  static const std::vector<std::string> names{
      "--augment",  "--random-resized-crop", "--random-crop",  "--flip",           "--vertical-flip",
      "--rotation", "--normalize",           "--color-jitter", "--random-erasing", "--mean",
      "--std"};
  return names;
}

AugmentOptions augment_options(const CommonOptions& o) {
  AugmentOptions options{.resized_crop = o.random_resized_crop,
                         .crop_padding = o.random_crop,
                         .flip = o.horizontal_flip,
                         .vertical_flip = o.vertical_flip,
                         .rotation = o.rotation,
                         .erasing = o.random_erasing};
  if (!o.color_jitter.empty()) {
    std::vector<double> numbers = numbers_of("--color-jitter", o.color_jitter);
    if (numbers.size() > 4) {
      throw UsageError(
          fmt::format("--color-jitter: {} numbers, expected at most 4: brightness, contrast, saturation, "
                      "hue",
                      numbers.size()));
    }
    numbers.resize(4);
    options.color_jitter = {
        .brightness = numbers[0], .contrast = numbers[1], .saturation = numbers[2], .hue = numbers[3]};
  }
  return options;
}

ChannelStatistics given_normalization(const CommonOptions& o) {
  if (o.mean.empty() != o.stddev.empty()) {
    throw UsageError(
        fmt::format("{}: expected {}, too", o.mean.empty() ? "--std" : "--mean", o.mean.empty() ? "--mean" : "--std"));
  }
  if (!o.mean.empty() && o.normalize != "auto") {
    throw UsageError(fmt::format("--normalize {}: not with --mean and --std", o.normalize));
  }
  if (o.normalize == "imagenet") return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  return {numbers_of("--mean", o.mean), numbers_of("--std", o.stddev)};
}

DataOptions data_options(const CommonOptions& o) {
  DataOptions options{.target = o.target,
                      .ignore = o.ignore,
                      .categories = o.categories,
                      .val_split = o.val_split,
                      .hash_data = o.hash_data,
                      .skip_broken = o.skip_broken,
                      .augment = parse_augment(o.augment),
                      .transforms = augment_options(o),
                      .image_size = o.image_size,
                      .max_pixels = o.max_pixels,
                      .context = o.context,
                      .random_starts = !o.no_shuffle,
                      .limit_train = o.limit_train,
                      .limit_validation = o.limit_test};
  const ChannelStatistics given = given_normalization(o);
  options.mean = given.mean;
  options.stddev = given.std;
  if (o.normalize == "training") options.normalization = Normalization::training;
  if (o.normalize == "none") options.normalization = Normalization::none;
  if (!o.format.empty()) options.format = parse_data_format(o.format);
  if (!o.task.empty()) options.task = parse_task_kind(o.task);
  if (o.header != "auto") options.header = o.header == "yes";
  if (!o.delimiter.empty()) {
    const std::string text = o.delimiter == "tab" || o.delimiter == "\\t" ? "\t" : o.delimiter;
    if (text.size() != 1) {
      throw UsageError(fmt::format("--delimiter {}: expected one character, or tab", o.delimiter));
    }
    options.delimiter = text.front();
  }
  return options;
}

void check_mixing(const TrainOptions& o) {
  if (o.mixup == 0 && o.cutmix == 0) return;
  const char* name = o.mixup > 0 ? "--mixup" : "--cutmix";
  constexpr double kLeast = 0.001;
  if (o.mixup > 0 && o.cutmix > 0) throw UsageError("--cutmix: not with --mixup");
  if (std::max(o.mixup, o.cutmix) < kLeast) throw UsageError(fmt::format("{}: expected 0.001 to 1000, or 0", name));
  if (o.is_language_model() || (o.source && o.source->schema.input.size() != 3) || o.is_regression()) {
    throw UsageError(fmt::format("{}: only for pictures with classes", name));
  }
  if (o.class_weights != "none") throw UsageError(fmt::format("{}: not with --class-weights", name));
}

TaskModel task_model(const CommonOptions& o, DType dtype) {
  TaskModel model{.name = o.model};
  if (o.is_language_model()) {
    if (o.model == "gpt" && o.width % o.heads != 0) {
      throw UsageError(fmt::format("--width {}: not divisible by --heads {}", o.width, o.heads));
    }
    model.dropout = o.dropout;
    model.dtype = dtype;
    model.layers = o.layers;
    model.width = o.width;
    if (o.model == "gpt") model.heads = o.heads;
  }
  for (const std::string& text : o.hidden) {
    std::int64_t units = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), units);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || units < 1 || units > (1 << 20)) {
      throw UsageError(fmt::format("--hidden: found '{}', expected numbers of units such as 256,128", text));
    }
    model.hidden.push_back(units);
  }
  return model;
}

void open_own_data(TrainOptions& o, const CLI::App& app) {
  const bool model_given = is_given(app, "--model");
  std::error_code unknown;
  if (o.data.empty()) return refuse_own_options(app, "Fashion-MNIST needs none", picture_options());
  if (o.is_language_model()) {
    if (!o.format.empty() && o.format != name(DataFormat::text)) {
      throw UsageError(fmt::format("--model {}: reads a text, not --format {}", o.model, o.format));
    }
    return refuse_own_options(app, fmt::format("{} reads a text", o.model), {"--format"});
  }
  check(std::filesystem::exists(o.data, unknown), "--data {}: {}", o.data,
        unknown ? unknown.message() : "No such file or directory");
  if (o.format.empty() && is_mnist(o.data)) {
    return refuse_own_options(
        app, fmt::format("{} has files of Fashion-MNIST's form; --format idx reads others", o.data), picture_options());
  }
  const DataFormat format = o.format.empty() ? detect_format(o.data) : parse_data_format(o.format);
  if (format == DataFormat::text) {
    if (model_given) {
      throw UsageError(
          fmt::format("--model {}: {} is a text, expected --model gpt or lstm (or another --format)", o.model, o.data));
    }
    o.model = "gpt";
    return refuse_own_options(app, fmt::format("{} is a text", o.data), {"--format"});
  }
  o.own_data = true;
  o.source = std::make_shared<const DataSource>(open_data(o.data, data_options(o)));
  const DataSchema& schema = o.source->schema;
  if (is_given(app, "--val-split") && o.source->has_validation_part) {
    o.notices.push_back(fmt::format("--val-split changes nothing: {} has a part for tests", o.data));
    o.val_split = TrainOptions().val_split;
  }
  if (!model_given) o.model = default_task_model(schema);
  try {
    make_task_model(schema, task_model(o));
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(fmt::format("--model {}: {}", o.model, error.what()));
  }
  if (schema.task == lockstep::TaskKind::regression) {
    for (const char* name : {"--class-weights", "--label-smoothing", "--metrics"}) {
      if (is_given(app, name))
        throw UsageError(fmt::format("{}: only for classes; {} has numbers to predict", name, o.data));
    }
  }
  if (app.get_option_no_throw("--epochs") == nullptr) return;
  if (!is_given(app, "--batch-size")) o.batch_size = 32;
  if (!is_given(app, "--optimizer")) o.optimizer = "adam";
  if (!is_given(app, "--lr")) o.lr = o.optimizer == "sgd" ? 0.01 : 0.001;
  if (!is_given(app, "--epochs")) o.epochs = epochs_of(o.source->all_train, o.batch_size);
}

}  // namespace lockstep::app
