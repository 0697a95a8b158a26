#include "apps/lockstep/learning_task.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "apps/lockstep/fine_tuning.h"
#include "apps/lockstep/options/own_data.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/text.h"
#include "lockstep/task/run.h"

namespace lockstep::app {
namespace {

// Returns 5 for "top5_accuracy", 0 for other names.
std::int64_t k_of_top_k(std::string_view name) {
  constexpr std::string_view kFirst = "top", kLast = "_accuracy";
  if (!name.starts_with(kFirst) || !name.ends_with(kLast) || name.size() <= kFirst.size() + kLast.size()) return 0;
  const std::string_view digits = name.substr(kFirst.size(), name.size() - kFirst.size() - kLast.size());
  std::int64_t k = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), k);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() ? k : 0;
}

Metric make_metric(const std::string& name, std::int64_t classes, const metrics::ClassOptions& options) {
  if (name == "accuracy") return metrics::accuracy(options);
  if (name == "perplexity") return metrics::perplexity(options);
  if (name == "confusion_matrix") return metrics::confusion_matrix(classes, options);
  if (const std::int64_t k = k_of_top_k(name); k > 0) {
    if (k > classes) throw UsageError(fmt::format("--metrics {}: there are {} classes", name, classes));
    return metrics::top_k_accuracy(k, options);
  }
  throw UsageError(fmt::format(
      "--metrics {}: expected accuracy, top5_accuracy (or another number), perplexity, or confusion_matrix", name));
}

}  // namespace

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

std::optional<std::string> recipe_text(const std::string& weights, std::string_view name) {
  const std::filesystem::path path = weights;
  try {
    if (!std::filesystem::is_directory(path) && path.filename() != "weights.safetensors") return std::nullopt;
    const Recipe recipe = read_recipe(std::filesystem::is_directory(path) ? path : path.parent_path());
    const Recipe::Value* found = recipe.find(name);
    const std::string* text = found ? found->as<std::string>() : nullptr;
    return text ? std::optional(*text) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // loading the weights reports the error
  }
}

namespace {

bool is_weights_file(const std::string& path) {
  try {
    if (std::filesystem::is_directory(path)) return false;
    read_safetensors(path);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Returns the end of an error message: the model of the checkpoint, or the expected model; empty if they do not help.
std::string models_of(const CommonOptions& o) {
  const std::optional<std::string> model = recipe_text(o.init_from, "model");
  if (model && *model != o.model.name) {
    return fmt::format("; the checkpoint is of --model {}, expected --model {}", *model, o.model.name);
  }
  return is_weights_file(o.init_from) ? fmt::format("; expected weights of --model {}", o.model.name) : "";
}

}  // namespace

void notice_other_text(const CommonOptions& o, const DataSource& data) {
  if (!o.is_language_model() || o.init_from.empty()) return;
  const std::optional<std::string> text = recipe_text(o.init_from, "data");
  if (!text || *text == data.digest) return;
  notice(fmt::format(
      "--init-from {}: learned another text than --data {}: a text numbers its own characters, so the model "
      "may take one for another",
      o.init_from, o.data));
}

namespace {

// Returns the schema of the run whose folder, or a checkpoint in it, --init-from names; nothing for other files.
std::optional<DataSchema> schema_of_weights(const CommonOptions& o) {
  const std::filesystem::path path = std::filesystem::absolute(o.init_from).lexically_normal();
  try {
    if (!std::filesystem::is_directory(path)) return std::nullopt;
    const std::filesystem::path inner = path.has_filename() ? path : path.parent_path();
    for (const std::filesystem::path& folder : {inner, inner.parent_path()}) {
      if (std::filesystem::exists(folder / "run.json")) return read_run(folder).schema;
    }
  } catch (const std::exception&) {  // written by another program
  }
  return std::nullopt;
}

std::string few_words(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(words.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + words[i];
  return text + (words.size() > kMost ? ", ..." : "");
}

}  // namespace

void notice_other_schema(const CommonOptions& o, const DataSource& data) {
  if (!o.own_data || o.init_from.empty()) return;
  const std::optional<DataSchema> learned = schema_of_weights(o);
  if (!learned) return;
  const DataSchema& mine = data.schema;
  if (learned->classes.size() == mine.classes.size() && learned->classes != mine.classes) {
    notice(fmt::format("--init-from {}: the last layer learned the classes {}; these data have {}", o.init_from,
                       few_words(learned->classes), few_words(mine.classes)));
  }
  if (!learned->table || !mine.table) return;
  const auto same = [](const TableColumn& a, const TableColumn& b) {
    return a.name == b.name && a.kind == b.kind && a.categories == b.categories;
  };
  if (!std::ranges::equal(learned->table->columns, mine.table->columns, same)) {
    notice(fmt::format("--init-from {}: learned other columns or categories: the model may take one for another",
                       o.init_from));
  }
}

std::unique_ptr<Module> make_initialized_model(const CommonOptions& o, const ToolJob& job, const DataSchema& schema) {
  const TaskModel model = task_model(o, job.dtype);
  auto net = make_task_model(schema, model);
  net->initialize(task_initializer(schema, model), job.devices(), {.seed = o.seed});
  if (o.init_from.empty()) return net;
  if (!o.partial) {
    try {
      std::string said;
      if (o.is_language_model()) {
        load_weights(o.init_from, *net);
      } else {
        said = load_with_new_head(o.init_from, *net);
      }
      if (!said.empty() && job.rank() == 0) notice(said);
    } catch (const Error& error) {
      fail("{}{}", error.what(), models_of(o));
    }
    return net;
  }
  const UnmatchedEntries unmatched = load_matching_weights(o.init_from, *net);
  if (job.rank() != 0) return net;
  for (const std::string& entry : unmatched.missing) notice("--partial: not in the file: " + entry);
  for (const std::string& entry : unmatched.different) notice("--partial: does not fit: " + entry);
  for (const std::string& entry : unmatched.unexpected) notice("--partial: not in the model: " + entry);
  return net;
}

std::vector<Metric> make_metrics(const CommonOptions& o, std::int64_t classes) {
  if (o.is_regression()) return task_metrics(o.source->schema);
  std::vector<std::string> names = o.metrics;
  if (names.empty() && !o.is_language_model()) return {};
  if (names.empty()) names = {"perplexity"};
  // Adds the accuracy for the log and the plot.
  if (std::ranges::find(names, "accuracy") == names.end()) names.insert(names.begin(), "accuracy");
  const metrics::ClassOptions axis{.dim = -1};
  std::vector<Metric> all;
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1) throw UsageError(fmt::format("--metrics: {} is named twice", name));
    all.push_back(make_metric(name, classes, axis));
  }
  return all;
}

}  // namespace lockstep::app
