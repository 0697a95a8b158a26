#include "learning_task.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "lockstep/base/file.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/models.h"

namespace lockstep::app {
namespace {

constexpr std::size_t kLargestText = std::size_t{1} << 31;

std::string sha256_of(const std::string& text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

Examples load_text(const JobOptions& o, MnistPart part) {
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
  return {std::move(data), characters.size(), [hash = sha256_of(text)] { return hash; }};
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
  if (const std::int64_t k = k_of_top_k(name); k > 0) return metrics::top_k_accuracy(k, options);
  throw UsageError(fmt::format(
      "--metrics {}: expected accuracy, top5_accuracy (or another number), perplexity, or confusion_matrix", name));
}

}  // namespace

Examples load_examples(const JobOptions& o, MnistPart part) {
  if (o.is_language_model()) return load_text(o, part);
  const auto images = std::make_shared<FashionMnist>(load_fashion_mnist(part, o.data));
  const std::int64_t limit = part == MnistPart::train ? o.limit_train : o.limit_test;
  std::shared_ptr<const Dataset> data = images;
  if (limit > 0) data = std::make_shared<HeadDataset>(images, limit);
  return {std::move(data), 10, [images] { return images->sha256(); }};
}

void notice_limit(const JobOptions& o, MnistPart part, const Examples& examples) {
  const bool training = part == MnistPart::train;
  const std::int64_t limit = training ? o.limit_train : o.limit_test, size = examples.data->size();
  if (limit <= size) return;
  const char* kind = training ? "train" : "test";
  notice(fmt::format("--limit-{0} {1} changes nothing: there are {2} {0} examples", kind, limit, size));
}

Examples made_up_examples(const JobOptions& o, std::int64_t count) {
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

std::unique_ptr<Module> build_model(const JobOptions& o, std::int64_t classes, DType dtype) {
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
  return make_model(o.model, classes);
}

std::unique_ptr<Module> make_initialized_model(const JobOptions& o, const Job& job, std::int64_t classes) {
  auto net = build_model(o, classes, job.dtype);
  const Initializer start = o.model == "gpt"    ? Initializer(Normal{0.02})
                            : o.model == "lstm" ? Initializer(Uniform(1 / std::sqrt(static_cast<double>(o.width))))
                                                : model_initializer(o.model);
  net->initialize(start, job.devices, {.seed = o.seed});
  if (o.init_from.empty()) return net;
  if (!o.partial) {
    load_weights(o.init_from, *net);
    return net;
  }
  const UnmatchedEntries unmatched = load_matching_weights(o.init_from, *net);
  if (job.rank() != 0) return net;
  for (const std::string& entry : unmatched.missing) notice("--partial: not in the file: " + entry);
  for (const std::string& entry : unmatched.different) notice("--partial: does not fit: " + entry);
  for (const std::string& entry : unmatched.unexpected) notice("--partial: not in the model: " + entry);
  return net;
}

std::vector<Metric> make_metrics(const JobOptions& o, std::int64_t classes) {
  std::vector<std::string> names = o.metrics;
  if (names.empty() && !o.is_language_model()) return {};
  if (names.empty()) names = {"perplexity"};
  // The log and the plot have it.
  if (std::ranges::find(names, "accuracy") == names.end()) names.insert(names.begin(), "accuracy");
  const metrics::ClassOptions axis{.dim = -1};
  std::vector<Metric> all;
  for (const std::string& name : names) all.push_back(make_metric(name, classes, axis));
  return all;
}

std::string as_text(const std::vector<std::vector<double>>& table) {
  double largest = 0;
  for (const auto& row : table) largest = std::max(largest, std::ranges::max(row));
  const std::size_t width = fmt::formatted_size("{:.0f}", largest) + 1;
  std::string text;
  for (const auto& row : table) {
    for (double count : row) text += fmt::format("{:>{}.0f}", count, width);
    text += '\n';
  }
  return text;
}

std::function<Tensor(const Tensor&, const Tensor&)> make_loss(const JobOptions& o, double label_smoothing) {
  if (!o.is_language_model()) return nullptr;
  return [=](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(flatten(logits, 0, 1), flatten(labels, 0, 1), {.label_smoothing = label_smoothing});
  };
}

}  // namespace lockstep::app
