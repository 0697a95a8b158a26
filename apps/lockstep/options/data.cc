#include "apps/lockstep/options/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/text.h"

namespace lockstep::app {
namespace {

// Returns how open_data() must read --data.
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

}  // namespace

std::string open_own_data(CommonOptions& o, const CLI::App& app) {
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
    if (is_given(app, "--model")) {
      throw UsageError(fmt::format("--model {}: {} is a text, expected --model gpt or lstm (or another --format)",
                                   o.model.name, o.data));
    }
    o.model.name = "gpt";
    return fmt::format("{} is a text", o.data);
  }
  o.own_data = true;
  o.source = std::make_shared<const DataSource>(open_data(o.data, data_options(o)));
  return "";
}

std::shared_ptr<const DataSource> load_data(const CommonOptions& o) {
  if (o.source) return o.source;
  if (o.is_language_model() && o.data.empty()) {
    throw UsageError(fmt::format("--model {}: expected --data FILE, a text file", o.model.name));
  }
  DataOptions options = data_options(o);
  options.format = o.is_language_model() ? DataFormat::text : DataFormat::idx;
  const std::filesystem::path path = o.data.empty() ? find_fashion_mnist() : std::filesystem::path(o.data);
  check(o.is_language_model() || is_mnist(path),
        "fashion-mnist: {} has none of its four IDX files. Get the data with `apt-get install dataset-fashion-mnist`, "
        "or give a folder that has them",
        path.string());
  auto data = std::make_shared<const DataSource>(open_data(path, options));
  if (o.is_language_model()) return data;
  check(data->has_validation_part,
        "{}: has no test part, expected t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte; --format idx takes a part "
        "of the training examples instead",
        path.string());
  check(data->schema.outputs == std::ssize(kFashionMnistClasses),
        "{}: has {} classes, expected labels of 0 to 9; --format idx reads others", path.string(),
        data->schema.outputs);
  return data;
}

bool is_plain_mnist(const DataSource& data) {
  const auto& array = data.schema.array;
  // In other formats, the digest of the training part covers both parts.
  const bool mnist = data.schema.format == DataFormat::idx && !data.validation_digest.empty();
  if (!mnist || !array || !array->mean.empty()) return false;
  std::vector<std::int64_t> ten(kFashionMnistClasses.size());
  std::iota(ten.begin(), ten.end(), 0);
  return data.schema.input == std::vector<std::int64_t>{1, 28, 28} &&
         array->task == lockstep::TaskKind::classification && array->values == ten;
}

std::string data_path(const CommonOptions& o) {
  const std::filesystem::path path =
      o.data.empty() && !o.is_language_model() ? find_fashion_mnist() : std::filesystem::path(o.data);
  return std::filesystem::absolute(path).lexically_normal().string();
}

void notice_limits(const CommonOptions& o, const DataSource& data) {
  if (o.reading.limit_train > 0 && o.reading.limit_train < data.all_train) {
    // Folders of pictures, and many tables, are sorted by class, so a limit may leave classes out.
    std::string lost;
    for (std::size_t c = 0; c < data.train_counts.size(); ++c) {
      if (data.train_counts[c] == 0) lost += (lost.empty() ? "" : ", ") + data.schema.classes[c];
    }
    if (!lost.empty())
      notice(fmt::format("--limit-train {}: these examples have none of: {}", o.reading.limit_train, lost));
  }
  const auto unused = [](std::int64_t limit, std::int64_t all, const char* kind) {
    if (limit <= all) return;
    notice(fmt::format("--limit-{0} {1} changes nothing: there are {2} {0} examples", kind, limit, all));
  };
  unused(o.reading.limit_train, data.all_train, "train");
  unused(o.reading.limit_validation, data.all_validation, "test");
}

DataSchema stand_in_schema(const CommonOptions& o) {
  constexpr std::int64_t kCharacters = 65;
  if (o.is_language_model()) {
    return {.format = DataFormat::text,
            .task = lockstep::TaskKind::language,
            .input = {o.reading.context},
            .outputs = kCharacters};
  }
  return {.format = DataFormat::idx, .input = {1, 28, 28}, .outputs = std::ssize(kFashionMnistClasses)};
}

std::shared_ptr<const Dataset> made_up_examples(const CommonOptions& o, std::int64_t count) {
  if (!o.is_language_model()) {
    return std::make_shared<TensorDataset>(
        std::vector<Tensor>{Tensor::host({count, 1, 28, 28}, DType::f32), Tensor::host({count}, DType::i64)});
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count * o.reading.context + 1));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int64_t>(random_below(random_key(o.seed, {}), i, stand_in_schema(o).outputs));
  }
  return std::make_shared<TextDataset>(std::move(ids), TextOptions{.context = o.reading.context});
}

}  // namespace lockstep::app
