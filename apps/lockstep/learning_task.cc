#include "learning_task.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>

#include "fine_tuning.h"
#include "lockstep/base/file.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/data/normalize.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/text.h"
#include "lockstep/device/topology.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "own_data.h"

namespace lockstep::app {
namespace {

constexpr std::size_t kLargestText = std::size_t{1} << 31;

std::string sha256_of(const std::string& text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

Examples load_text(const CommonOptions& o, MnistPart part) {
  if (o.data.empty()) throw UsageError(fmt::format("--model {}: expected --data FILE, a text file", o.model));
  const std::string text = read_file(o.data, kLargestText);
  const CharacterSet characters(text);
  const bool training = part == MnistPart::train;
  const std::size_t window = static_cast<std::size_t>(o.context) + 1;
  const std::size_t test = std::min(text.size(), std::max(text.size() / 10, window));
  std::string_view mine = text;
  mine = training ? mine.substr(0, mine.size() - test) : mine.substr(mine.size() - test);
  if (const std::int64_t limit = training ? o.limit_train : o.limit_test;
      limit > 0 && limit <= static_cast<std::int64_t>(mine.size()) / o.context) {
    mine = mine.substr(0, static_cast<std::size_t>(limit * o.context + 1));
  }
  check(mine.size() >= window,
        "{}: {} characters, a tenth of them for tests, are too few: expected more than two contexts of {} (--context)",
        o.data, text.size(), o.context);
  auto data = std::make_shared<TextDataset>(
      characters.encode(mine), TextOptions{.context = o.context, .random_starts = training && !o.no_shuffle});
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < characters.size(); ++c)
    names.push_back(
        nlohmann::json(characters.decode({&c, 1})).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  DataSchema schema{.format = DataFormat::text,
                    .task = lockstep::TaskKind::language,
                    .input = {o.context},
                    .outputs = characters.size()};
  for (std::int64_t c = 0; c < characters.size(); ++c) schema.classes.push_back(characters.decode({&c, 1}));
  return {.data = std::move(data),
          .classes = characters.size(),
          .class_names = std::move(names),
          .sha256 = [hash = sha256_of(text)] { return hash; },
          .schema = [schema] { return schema; }};
}

// The hashes of the parts of Fashion-MNIST. Other data in its form have other classes.
constexpr std::string_view kFashionMnistHashes[] = {"16d82e2b505296aa2b78bd5ea0992634f30419a4c97def7c907d154a35ac6157",
                                                    "9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4"};

std::vector<std::string> class_names(const CommonOptions& o, const FashionMnist& images) {
  // Hashing takes time.
  if (std::ranges::find(o.metrics, "confusion_matrix") == o.metrics.end()) return {};
  if (std::ranges::find(kFashionMnistHashes, images.sha256()) == std::end(kFashionMnistHashes)) return {};
  return {kFashionMnistClasses.begin(), kFashionMnistClasses.end()};
}

std::vector<std::int64_t> counts_of(const Dataset& data, std::int64_t classes) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    ++counts.at(static_cast<std::size_t>(data.get(i).at(1).item<std::int64_t>()));
  }
  return counts;
}

// What --normalize says of Fashion-MNIST, whose pixels lie in 0 to 1; empty: they stay as they are.
ChannelStatistics fashion_normalization(const CommonOptions& o, const Dataset& train) {
  if (o.normalize == "training") {
    return channel_statistics(train, {.threads = static_cast<int>(available_cpus().size())});
  }
  const ChannelStatistics given = given_normalization(o);
  if (given.mean.size() > 1 || given.std.size() > 1) {
    throw UsageError(fmt::format("{}: {} and {} numbers, expected one each: the pictures have one channel",
                                 o.mean.empty() ? "--normalize " + o.normalize : std::string("--mean, --std"),
                                 given.mean.size(), given.std.size()));
  }
  return given;
}

// Fashion-MNIST as data of the task that they are.
DataSchema fashion_schema(std::int64_t classes) {
  return {.format = DataFormat::idx, .input = {1, 28, 28}, .outputs = classes};
}

// The same with all that open_examples() needs.
DataSchema fashion_run_schema(const FashionMnist& images, const ChannelStatistics& normalization) {
  const bool known = std::ranges::find(kFashionMnistHashes, images.sha256()) != std::end(kFashionMnistHashes);
  const Shape shape = images.get(0)[0].shape();
  DataSchema schema = fashion_schema(10);
  schema.input.assign(shape.begin(), shape.end());
  ArraySchema array{.row = {shape[1], shape[2]}, .input = schema.input, .type = ElementType::u8, .divisor = 255};
  for (std::int64_t c = 0; c < schema.outputs; ++c) {
    array.values.push_back(c);
    array.classes.push_back(known ? std::string(kFashionMnistClasses.at(static_cast<std::size_t>(c)))
                                  : fmt::format("{}", c));
  }
  for (const double m : normalization.mean) array.mean.push_back(255 * m);
  for (const double s : normalization.std) array.stddev.push_back(255 * s);
  if (!array.mean.empty()) array.divisor = 1;
  schema.classes = array.classes;
  schema.array = std::move(array);
  return schema;
}

Examples load_fashion(const CommonOptions& o, MnistPart part) {
  const bool training = part == MnistPart::train;
  const auto images = std::make_shared<FashionMnist>(load_fashion_mnist(part, o.data));
  std::shared_ptr<const Dataset> data = images;
  ChannelStatistics normalization;
  if (o.normalize == "training" && !training) {
    normalization = fashion_normalization(o, FashionMnist(load_fashion_mnist(MnistPart::train, o.data)));
  } else {
    normalization = fashion_normalization(o, *images);
  }
  std::string transforms;
  const auto transform = [&](ImageTransform with) {
    const auto transformed = std::make_shared<TransformedDataset>(data | std::move(with));
    transforms += (transforms.empty() ? "" : " | ") + transformed->str();
    data = transformed;
  };
  const AugmentOptions by_name = augment_options(o);
  if (const Augment augment = parse_augment(o.augment); training && augments(augment, by_name)) {
    const Shape shape = images->get(0)[0].shape();
    transform(augmentation(augment, {shape[1], shape[2]}, by_name));
  }
  if (!normalization.mean.empty()) transform(Normalize(normalization.mean, normalization.std));
  const std::int64_t limit = training ? o.limit_train : o.limit_test;
  if (limit > 0) data = std::make_shared<HeadDataset>(data, limit);
  return {.data = data,
          .classes = 10,
          .class_names = class_names(o, *images),
          .sha256 = [images] { return images->sha256(); },
          .counts = [images, size = data->size()] { return counts_of(HeadDataset(images, size), 10); },
          .schema = [images, normalization] { return fashion_run_schema(*images, normalization); },
          .name = [](std::int64_t index) { return std::to_string(index + 1); },
          .transforms = std::move(transforms)};
}

Examples own_examples(const CommonOptions& o, MnistPart part) {
  const bool training = part == MnistPart::train;
  const DataSource& own = *o.own;
  std::shared_ptr<const Dataset> data = training ? own.train : own.validation;
  const std::int64_t limit = training ? o.limit_train : o.limit_test;
  Examples examples{.data = data,
                    .classes = own.schema.outputs,
                    .class_names = own.schema.classes,
                    .sha256 = [source = o.own] { return source->digest; },
                    .counts = [source = o.own] { return source->train_counts; },
                    .schema = [source = o.own] { return source->schema; },
                    .name = training ? nullptr : own.validation_name};
  if (limit == 0 || limit >= data->size()) return examples;
  examples.data = std::make_shared<HeadDataset>(data, limit);
  examples.counts = [part = examples.data, classes = own.schema.outputs] { return counts_of(*part, classes); };
  return examples;
}

// 5 for "top5_accuracy", 0 for other names.
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

Examples load_examples(const CommonOptions& o, MnistPart part) {
  if (o.is_language_model()) return load_text(o, part);
  if (o.own) return own_examples(o, part);
  return load_fashion(o, part);
}

std::vector<std::string> known_class_names(const Examples& examples) {
  if (!examples.class_names.empty() || !examples.sha256 || examples.classes != std::ssize(kFashionMnistClasses))
    return examples.class_names;
  if (std::ranges::find(kFashionMnistHashes, examples.sha256()) == std::end(kFashionMnistHashes)) return {};
  return {kFashionMnistClasses.begin(), kFashionMnistClasses.end()};
}

std::string data_path(const CommonOptions& o) {
  const std::filesystem::path path =
      o.data.empty() && !o.is_language_model() ? find_fashion_mnist() : std::filesystem::path(o.data);
  return std::filesystem::absolute(path).lexically_normal().string();
}

void notice_limit(const CommonOptions& o, MnistPart part, const Examples& examples) {
  const bool training = part == MnistPart::train;
  const std::int64_t limit = training ? o.limit_train : o.limit_test, size = examples.data->size();
  const char* kind = training ? "train" : "test";
  if (limit > 0 && training && o.own && !o.is_regression()) {
    // Folders of pictures, and many tables, have one class after the other.
    const std::vector<std::int64_t> all = o.own->train_counts, some = examples.counts();
    std::string lost;
    for (std::size_t c = 0; c < all.size(); ++c) {
      if (all[c] > 0 && some[c] == 0) lost += (lost.empty() ? "" : ", ") + o.own->schema.classes[c];
    }
    if (!lost.empty()) notice(fmt::format("--limit-train {}: these examples have none of: {}", limit, lost));
  }
  if (limit <= size) return;
  notice(fmt::format("--limit-{0} {1} changes nothing: there are {2} {0} examples", kind, limit, size));
}

Examples made_up_examples(const CommonOptions& o, std::int64_t count) {
  if (!o.is_language_model()) {
    return {std::make_shared<TensorDataset>(
        std::vector<Tensor>{Tensor::host({count, 1, 28, 28}, DType::f32), Tensor::host({count}, DType::i64)})};
  }
  constexpr std::int64_t kCharacters = 65;  // as many as a play has
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count * o.context + 1));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int64_t>(random_below(random_key(o.seed, {}), i, kCharacters));
  }
  return {std::make_shared<TextDataset>(std::move(ids), TextOptions{.context = o.context}), kCharacters};
}

std::unique_ptr<Module> build_model(const CommonOptions& o, std::int64_t classes, DType dtype) {
  if (o.model == "gpt") {
    if (o.width % o.heads != 0) {
      throw UsageError(fmt::format("--width {}: not divisible by --heads {}", o.width, o.heads));
    }
    return std::make_unique<GPT>(GPTOptions{.vocab_size = classes,
                                            .block_size = o.context,
                                            .n_layer = o.layers,
                                            .n_head = o.heads,
                                            .n_embd = o.width,
                                            .dropout = o.dropout,
                                            .dtype = dtype});
  }
  if (o.model == "lstm") {
    return std::make_unique<LstmLanguageModel>(LstmLanguageModelOptions{.vocab_size = classes,
                                                                        .embedding_dim = o.width,
                                                                        .hidden_size = o.width,
                                                                        .num_layers = o.layers,
                                                                        .dropout = o.dropout,
                                                                        .dtype = dtype});
  }
  if (o.own) return make_task_model(o.own->schema, task_model(o));
  return make_task_model(fashion_schema(classes), task_model(o));
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
    return std::nullopt;  // whoever loads the weights says so
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

// Which weights were found, or else which were asked for, if they do not fit.
std::string models_of(const CommonOptions& o) {
  const std::optional<std::string> model = recipe_text(o.init_from, "model");
  if (model && *model != o.model) {
    return fmt::format("; the checkpoint is of --model {}, expected --model {}", *model, o.model);
  }
  return is_weights_file(o.init_from) ? fmt::format("; expected weights of --model {}", o.model) : "";
}

}  // namespace

void notice_other_text(const CommonOptions& o, const Examples& examples) {
  if (!o.is_language_model() || o.init_from.empty()) return;
  const std::optional<std::string> text = recipe_text(o.init_from, "data");
  if (!text || *text == examples.sha256()) return;
  notice(fmt::format(
      "--init-from {}: learned another text than --data {}: a text numbers its own characters, so the model "
      "may take one for another",
      o.init_from, o.data));
}

namespace {

// Of the run whose folder, or a checkpoint in it, --init-from names; none otherwise.
std::optional<DataSchema> schema_of_weights(const CommonOptions& o) {
  constexpr std::size_t kLargest = std::size_t{1} << 26;
  const std::filesystem::path path = std::filesystem::absolute(o.init_from).lexically_normal();
  try {
    if (!std::filesystem::is_directory(path)) return std::nullopt;
    const std::filesystem::path inner = path.has_filename() ? path : path.parent_path();
    for (const std::filesystem::path& folder : {inner, inner.parent_path()}) {
      if (!std::filesystem::exists(folder / "run.json")) continue;
      const auto json = parse_json<nlohmann::json>(read_file(folder / "run.json", kLargest));
      return DataSchema::from_json(json.at("schema").dump());
    }
  } catch (const std::exception&) {  // a file of another program
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

void notice_other_schema(const CommonOptions& o) {
  if (!o.own || o.init_from.empty()) return;
  const std::optional<DataSchema> learned = schema_of_weights(o);
  if (!learned) return;
  const DataSchema& mine = o.own->schema;
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

std::unique_ptr<Module> make_initialized_model(const CommonOptions& o, const ToolJob& job, std::int64_t classes) {
  auto net = build_model(o, classes, job.dtype);
  const Initializer start = o.model == "gpt" ? Initializer(Normal{0.02})
                            : o.model == "lstm"
                                ? Initializer(Uniform(1 / std::sqrt(static_cast<double>(o.width))))
                                : task_initializer(o.own ? o.own->schema : fashion_schema(classes), task_model(o));
  net->initialize(start, job.devices(), {.seed = o.seed});
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
  if (o.is_regression()) return task_metrics(o.own->schema);
  std::vector<std::string> names = o.metrics;
  if (names.empty() && !o.is_language_model()) return {};
  if (names.empty()) names = {"perplexity"};
  // The log and the plot have it.
  if (std::ranges::find(names, "accuracy") == names.end()) names.insert(names.begin(), "accuracy");
  const metrics::ClassOptions axis{.dim = -1};
  std::vector<Metric> all;
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1) throw UsageError(fmt::format("--metrics: {} is named twice", name));
    all.push_back(make_metric(name, classes, axis));
  }
  return all;
}

std::string confusion_text(const std::string& name, const std::vector<std::vector<double>>& table,
                           const std::vector<std::string>& class_names) {
  struct Pair {
    std::size_t label, predicted;
  };
  const auto count = [&](const Pair& p) { return table[p.label][p.predicted]; };
  const auto class_name = [&](std::size_t c) {
    return c < class_names.size() ? fmt::format("{} {}", c, class_names[c]) : fmt::format("{}", c);
  };
  double largest = 0;
  std::vector<std::size_t> classes;  // those that occur
  std::vector<Pair> confused;
  for (std::size_t i = 0; i < table.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < table.size(); ++j) {
      sum += table[i][j] + table[j][i];
      largest = std::max(largest, table[i][j]);
      if (i != j && table[i][j] > 0) confused.push_back({i, j});
    }
    if (sum > 0) classes.push_back(i);
  }
  const std::string corner = "label \\ predicted";
  std::size_t head = corner.size();
  for (const std::size_t c : classes) head = std::max(head, class_name(c).size());
  const std::size_t width =
      std::max(fmt::formatted_size("{:.0f}", largest), fmt::formatted_size("{}", table.size())) + 1;
  std::string text = fmt::format("{}:\n{:<{}}", name, corner, head);
  for (const std::size_t c : classes) text += fmt::format("{:>{}}", c, width);
  text += '\n';
  for (const std::size_t label : classes) {
    text += fmt::format("{:<{}}", class_name(label), head);
    for (const std::size_t predicted : classes) text += fmt::format("{:>{}.0f}", table[label][predicted], width);
    text += '\n';
  }
  std::ranges::stable_sort(confused, std::greater<>(), count);
  constexpr std::size_t kMostPairs = 3;
  confused.resize(std::min(confused.size(), kMostPairs));
  if (confused.empty()) return text;
  text += "most often confused:";
  for (const Pair& p : confused) {
    text += fmt::format("{} {} as {} ({:.0f} of {:.0f})", &p == confused.data() ? "" : ",", class_name(p.label),
                        class_name(p.predicted), count(p), std::reduce(table[p.label].begin(), table[p.label].end()));
  }
  return text + '\n';
}

std::function<Tensor(const Tensor&, const Tensor&)> make_loss(const CommonOptions& o, double label_smoothing) {
  if (o.own) return task_loss(o.own->schema, label_smoothing);
  if (!o.is_language_model()) return nullptr;
  return [=](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(flatten(logits, 0, 1), flatten(labels, 0, 1), {.label_smoothing = label_smoothing});
  };
}

}  // namespace lockstep::app
