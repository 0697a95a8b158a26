#include "eval_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "command_line.h"
#include "common_options.h"
#include "confusion_picture.h"
#include "learning_task.h"
#include "lockstep/base/file.h"
#include "lockstep/data/csv.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/task/data_source.h"
#include "lockstep/task/run.h"
#include "own_data.h"
#include "run_config.h"

namespace lockstep::app {
namespace {

struct Outcome {
  std::string example;
  double loss;
  std::string text;  // "versicolor as virginica"
};

// On one line, and in UTF-8, which a picture needs.
std::string shown_name(const std::string& name) {
  const std::string quoted = quoted_cell(name);
  const nlohmann::json text = quoted.substr(1, quoted.size() - 2);
  return nlohmann::json::parse(text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).get<std::string>();
}

void print_worst(std::vector<Outcome> all, std::int64_t count, std::string_view measure) {
  if (count == 0) return;
  std::ranges::stable_sort(all, std::greater<>(), &Outcome::loss);
  all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
  fmt::print("largest {}:\n", measure);
  for (const Outcome& o : all) fmt::print("  {:.4f}  {}: {}\n", o.loss, o.example, o.text);
}

void print_classes(const std::vector<std::vector<double>>& table, const std::vector<std::string>& names) {
  std::size_t width = 5;
  for (const std::string& name : names) width = std::max(width, name.size());
  fmt::print("{:<{}}  precision  recall  examples\n", "class", width);
  for (std::size_t c = 0; c < table.size(); ++c) {
    const double examples = std::reduce(table[c].begin(), table[c].end());
    double predicted = 0;
    for (const auto& row : table) predicted += row[c];
    const auto share = [&](double of) { return of > 0 ? fmt::format("{:.4f}", table[c][c] / of) : std::string("-"); };
    fmt::print("{:<{}}  {:>9}  {:>6}  {:>8.0f}\n", names[c], width, share(predicted), share(examples), examples);
  }
}

// The examples that the training run was tested on, made as it made them.
DataExamples own_validation(const EvalRunOptions& o, const DataSchema& schema) {
  TrainOptions options = read_run_config(o.run);
  if (options.val_split == 0 || (options.own && !options.own->validation)) {
    fail("--run {}: has no validation part, expected --data PATH", o.run);
  }
  const Examples train = load_examples(options, MnistPart::train);
  const std::string known = recipe_text(o.run, "data").value_or("");
  check(known.empty() || known == train.sha256(),
        "--run {}: {} is not what it was in training: --data PATH evaluates it as new data", o.run, options.data);
  check(schema_hash(train.schema()) == schema_hash(schema),
        "--run {}: {} now makes other examples than in training: --data PATH evaluates it as "
        "new data",
        o.run, options.data);
  const Examples test = load_examples(options, MnistPart::test);
  DataExamples examples{.data = test.data, .labeled = true};
  for (std::int64_t i = 0; i < test.data->size(); ++i) {
    examples.names.push_back(test.name ? test.name(i) : std::to_string(i + 1));
  }
  return examples;
}

int eval_text(const Run& model, const std::shared_ptr<const Dataset>& examples, std::int64_t batch_size) {
  double loss = 0, right = 0, count = 0;
  const auto classes = static_cast<std::size_t>(model.schema().outputs);
  for (const Example& batch : DataLoader(examples, {.batch_size = batch_size})) {
    const std::vector<float> values = model(batch.at(0)).to_vector<float>();
    const auto labels = batch.at(1).to_vector<std::int64_t>();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const std::span<const float> mine(values.data() + i * classes, classes);
      const auto label = static_cast<std::size_t>(labels[i]);
      loss -= std::log(std::max(static_cast<double>(mine[label]), 1e-30));
      right += std::ranges::max_element(mine) - mine.begin() == labels[i] ? 1 : 0;
      count += 1;
    }
  }
  check(count > 0, "a text without an example, expected a longer one");
  fmt::print("test acc: {:.4f} ({:.0f} of {:.0f})\nperplexity: {:.4f}\n", right / count, right, count,
             std::exp(loss / count));
  return 0;
}

}  // namespace

void notice_skipped(const std::string& path, std::int64_t count) {
  notice(fmt::format("{}: skipped {} broken example{}", path, count, count == 1 ? "" : "s"));
}

int eval_run(const EvalRunOptions& o) {
  const Run model = load_run(o.run);
  const DataSchema& schema = model.schema();
  const bool classes = schema.task == lockstep::TaskKind::classification;
  const bool text = schema.task == lockstep::TaskKind::language;
  if (!o.confusion.empty() && !classes) {
    throw UsageError(
        fmt::format("--confusion: only for classes; this run {}", text ? "continues a text" : "predicts numbers"));
  }
  if (!o.confusion.empty() && std::filesystem::path(o.confusion).extension() != ".svg") {
    throw UsageError(fmt::format("--confusion {}: expected a name that ends in .svg", o.confusion));
  }
  if (o.data.empty() && o.skip_broken) throw UsageError("--skip-broken: only with --data");
  // As training takes its validation part.
  const DataExamples examples =
      o.data.empty() ? own_validation(o, schema)
                     : open_examples(o.data, schema, {.unseen = Unseen::as_missing, .skip_broken = o.skip_broken});
  if (examples.skipped > 0) notice_skipped(o.data, examples.skipped);
  if (examples.unseen > 0) {
    notice(fmt::format("{}: {} cell{} without a counterpart in training, taken as missing", o.data, examples.unseen,
                       examples.unseen == 1 ? "" : "s"));
  }
  if (text) return eval_text(model, examples.data, o.batch_size);
  check(examples.labeled, "--data {}: has no labels to compare with, expected the target beside the inputs", o.data);
  std::vector<std::vector<double>> table(static_cast<std::size_t>(classes ? schema.outputs : 0),
                                         std::vector<double>(static_cast<std::size_t>(schema.outputs)));
  std::vector<Outcome> outcomes;
  std::vector<std::string> names;
  for (const std::string& name : schema.classes) names.push_back(shown_name(name));
  double squares = 0, absolute = 0, numbers = 0;
  const auto outputs = static_cast<std::size_t>(schema.outputs);
  DataLoader loader(examples.data, {.batch_size = o.batch_size, .workers = loader_threads(schema)});
  for (const Example& batch : loader) {
    const std::vector<double> values = model(batch.at(0)).to(DType::f64).to_vector<double>();
    const auto labels = classes ? batch.at(1).to_vector<std::int64_t>() : std::vector<std::int64_t>();
    const auto targets = classes ? std::vector<float>() : batch.at(1).to_vector<float>();
    for (std::size_t i = 0; i < values.size() / outputs; ++i) {
      const std::string& name = examples.names.at(outcomes.size());
      const std::span<const double> mine(values.data() + i * outputs, outputs);
      check(std::ranges::all_of(mine, [](double v) { return std::isfinite(v); }),
            "{}: the model computes numbers that are not finite", name);
      if (classes) {
        const auto label = static_cast<std::size_t>(labels[i]);
        const auto best = static_cast<std::size_t>(std::ranges::max_element(mine) - mine.begin());
        ++table.at(label).at(best);
        outcomes.push_back(
            {name, -std::log(std::max(mine[label], 1e-30)), fmt::format("{} as {}", names.at(label), names.at(best))});
        continue;
      }
      double sum = 0;
      for (std::size_t k = 0; k < outputs; ++k) {
        const double target =
            static_cast<double>(targets[i * outputs + k]) * schema.target_stddev.at(k) + schema.target_mean.at(k);
        const double error = mine[k] - target;
        sum += std::abs(error);
        squares += error * error;
        if (k == 0) outcomes.push_back({name, 0, fmt::format("{:.12g}, expected {:.12g}", mine[k], target)});
      }
      absolute += sum;
      numbers += static_cast<double>(outputs);
      outcomes.back().loss = sum;
    }
  }
  if (!classes) {
    fmt::print("mean_absolute_error: {:.6g}\nmean_squared_error: {:.6g}\n", absolute / numbers, squares / numbers);
    print_worst(std::move(outcomes), o.worst, "errors");
    return 0;
  }
  double correct = 0;
  for (std::size_t c = 0; c < table.size(); ++c) correct += table[c][c];
  fmt::print("test acc: {:.4f} ({:.0f} of {})\n", correct / static_cast<double>(outcomes.size()), correct,
             outcomes.size());
  print_classes(table, names);
  fmt::print("{}", confusion_text("confusion_matrix", table, names));
  print_worst(std::move(outcomes), o.worst, "losses");
  if (!o.confusion.empty()) write_file_atomically(o.confusion, confusion_svg(table, names));
  return 0;
}

}  // namespace lockstep::app
