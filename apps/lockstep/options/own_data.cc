#include "apps/lockstep/options/own_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/lockstep/options/option_row.h"
#include "lockstep/data/fashion_mnist.h"

namespace lockstep::app {
namespace {

// Returns the number of epochs with about 1000 steps, so that small data are learned, too.
std::int64_t epochs_of(std::int64_t examples, std::int64_t batch) {
  constexpr std::int64_t kSteps = 1000, kFewest = 10, kMost = 100;
  const std::int64_t steps = std::max<std::int64_t>(1, (examples + batch - 1) / batch);
  return std::clamp((kSteps + steps - 1) / steps, kFewest, kMost);
}

}  // namespace

DataOptions data_options(const CommonOptions& o) {
  DataOptions options = o.reading;
  options.random_starts = o.trainer.shuffle;
  // check_fits() has the better error message, so open_data() gets the default.
  if (!o.is_language_model()) options.context = DataOptions().context;
  if (!o.color_jitter.empty()) {
    std::vector<double> numbers = o.color_jitter;
    if (numbers.size() > 4) {
      throw UsageError(
          fmt::format("--color-jitter: {} numbers, expected at most 4: brightness, contrast, saturation, "
                      "hue",
                      numbers.size()));
    }
    numbers.resize(4);
    options.transforms.color_jitter = {
        .brightness = numbers[0], .contrast = numbers[1], .saturation = numbers[2], .hue = numbers[3]};
  }
  if (options.mean.empty() != options.stddev.empty()) {
    const bool mean = options.stddev.empty();
    throw UsageError(fmt::format("{}: expected {}, too", mean ? "--mean" : "--std", mean ? "--std" : "--mean"));
  }
  if (!options.mean.empty() && o.normalize != "auto") {
    throw UsageError(fmt::format("--normalize {}: not with --mean and --std", o.normalize));
  }
  if (o.normalize == "imagenet") {
    options.mean = {0.485, 0.456, 0.406};
    options.stddev = {0.229, 0.224, 0.225};
  }
  if (o.normalize == "training") options.normalization = Normalization::training;
  if (o.normalize == "none") options.normalization = Normalization::none;
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
  TaskModel model = o.model;
  if (!o.is_language_model()) return {.name = model.name, .hidden = model.hidden};
  if (model.name != "gpt") {
    model.heads = 0;
  } else if (model.width % model.heads != 0) {
    throw UsageError(fmt::format("--width {}: not divisible by --heads {}", model.width, model.heads));
  }
  model.dtype = dtype;
  return model;
}

std::string open_own_data(TrainOptions& o, const CLI::App& app) {
  const bool model_given = is_given(app, "--model");
  std::error_code unknown;
  if (o.is_language_model()) {
    if (o.reading.format.value_or(DataFormat::text) != DataFormat::text) {
      throw UsageError(fmt::format("--model {}: reads a text, not --format {}", o.model.name, name(*o.reading.format)));
    }
    return fmt::format("{} reads a text", o.model.name);
  }
  if (o.data.empty()) return "Fashion-MNIST needs none";
  check(std::filesystem::exists(o.data, unknown), "--data {}: {}", o.data,
        unknown ? unknown.message() : "No such file or directory");
  if (!o.reading.format && is_mnist(o.data)) {
    return fmt::format("{} has files of Fashion-MNIST's form; --format idx reads others", o.data);
  }
  const DataFormat format = o.reading.format ? *o.reading.format : detect_format(o.data);
  if (format == DataFormat::text) {
    if (model_given) {
      throw UsageError(fmt::format("--model {}: {} is a text, expected --model gpt or lstm (or another --format)",
                                   o.model.name, o.data));
    }
    o.model.name = "gpt";
    return fmt::format("{} is a text", o.data);
  }
  o.own_data = true;
  o.source = std::make_shared<const DataSource>(open_data(o.data, data_options(o)));
  const DataSchema& schema = o.source->schema;
  if (is_given(app, "--val-split") && o.source->has_validation_part) {
    o.notices.push_back(fmt::format("--val-split changes nothing: {} has a part for tests", o.data));
    o.reading.val_split = DataOptions().val_split;
  }
  if (!model_given) o.model.name = default_task_model(schema);
  try {
    make_task_model(schema, task_model(o));
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(fmt::format("--model {}: {}", o.model.name, message_of(error)));
  }
  if (app.get_option_no_throw("--epochs") == nullptr) return "";
  if (!is_given(app, "--batch-size")) o.trainer.batch_size = 32;
  if (!is_given(app, "--optimizer")) o.optimizer = "adam";
  if (!is_given(app, "--lr")) o.lr = o.optimizer == "sgd" ? 0.01 : 0.001;
  if (!is_given(app, "--epochs")) o.trainer.epochs = epochs_of(o.source->train->size(), o.trainer.batch_size);
  return "";
}

}  // namespace lockstep::app
