#include "apps/lockstep/eval_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/lockstep/confusion_matrix.h"
#include "apps/lockstep/options/common_options.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/options/run_config.h"
#include "apps/lockstep/output.h"
#include "lockstep/base/count_of.h"
#include "lockstep/base/file.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/formats/csv.h"
#include "lockstep/task/data_source.h"
#include "lockstep/task/outcomes.h"
#include "lockstep/task/run.h"

namespace lockstep::app {
namespace {

// `text` describes the model's outcome for an example.
void print_worst(const Outcomes& outcomes, const std::vector<std::string>& names, std::int64_t count,
                 std::string_view measure, const std::function<std::string(const ExampleOutcome&)>& text) {
  if (count == 0) return;
  std::vector<std::size_t> order(outcomes.examples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return outcomes.examples[i].loss; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
  print_out("largest {}:\n", measure);
  for (const std::size_t i : order) {
    print_out("  {:.4f}  {}: {}\n", outcomes.examples[i].loss, printable_name(names.at(i)), text(outcomes.examples[i]));
  }
}

void print_classes(const std::vector<std::vector<double>>& table, const std::vector<std::string>& names) {
  std::size_t width = 5;
  for (const std::string& name : names) width = std::max(width, name.size());
  print_out("{:<{}}  precision  recall  examples\n", "class", width);
  for (std::size_t c = 0; c < table.size(); ++c) {
    const double examples = std::reduce(table[c].begin(), table[c].end());
    double predicted = 0;
    for (const auto& row : table) predicted += row[c];
    const auto share = [&](double of) { return of > 0 ? fmt::format("{:.4f}", table[c][c] / of) : std::string("-"); };
    print_out("{:<{}}  {:>9}  {:>6}  {:>8.0f}\n", names[c], width, share(predicted), share(examples), examples);
  }
}

// Returns the examples that the training run was tested on, prepared as in training.
DataExamples own_validation(const EvalRunOptions& o, const Run& model) {
  const TrainOptions options = read_run_config(o.run);
  const std::shared_ptr<const DataSource> data = load_data(options);
  check(data->validation != nullptr, "--run {}: has no validation part, expected --data PATH", o.run);
  // Does not compare the whole recipe, because other settings of the training do not change these examples.
  const RunDescription& run = model.description();
  const Recipe::Value* digest = run.recipe.find("data");
  const bool same_validation = run.validation_digest.empty() || run.validation_digest == data->validation_digest;
  check((!digest || *digest == data->digest) && same_validation,
        "--run {}: {} is not what it was in training: --data PATH evaluates it as new data", o.run, options.data);
  check(schema_hash(data->schema) == schema_hash(model.schema()),
        "--run {}: {} now makes other examples than in training: --data PATH evaluates it as "
        "new data",
        o.run, options.data);
  DataExamples examples{.data = data->validation, .labeled = true};
  for (std::int64_t i = 0; i < data->validation->size(); ++i) {
    examples.names.push_back(data->validation_name ? data->validation_name(i) : std::to_string(i + 1));
  }
  return examples;
}

// Evaluates the model on the examples. If it computes no finite numbers for an example, the error names the example.
Outcomes outcomes_of(const Run& model, const DataExamples& examples, std::int64_t batch_size) {
  Outcomes outcomes = lockstep::outcomes_of(model.schema());
  DataLoader loader(examples.data, {.batch_size = batch_size, .workers = loader_threads(model.schema())});
  outcomes.add_all(loader, [&](const Example& batch) {
    return BatchOutputs{.outputs = model.outputs_of(batch.at(0)), .targets = batch.at(1)};
  });
  const auto bad = std::ranges::find(outcomes.examples, false, &ExampleOutcome::finite);
  const auto i = static_cast<std::size_t>(bad - outcomes.examples.begin());
  check(bad == outcomes.examples.end(), "{}: the model computes numbers that are not finite",
        i < examples.names.size() ? examples.names[i] : fmt::format("example {}", i + 1));
  return outcomes;
}

}  // namespace

CLI::Option* add_max_pixels(CLI::App& app, std::int64_t& max_pixels) {
  return app.add_option("--max-pixels", max_pixels, find_option_row("--max-pixels")->help)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
}

void notice_best(const std::string& folder, const Run& run) {
  const std::vector<std::filesystem::path> all = checkpoints_in(folder);
  if (all.empty() || run.weights().filename() == all.front().filename()) return;
  notice(fmt::format("--run {}: takes the weights of {}; the newest checkpoint is {}", folder, run.weights().string(),
                     all.front().string()));
}

void notice_skipped(const std::string& path, std::int64_t count) {
  notice(fmt::format("{}: skipped {}", path, count_of(count, "broken example")));
}

int eval_run(const EvalRunOptions& o) {
  const Run model = load_run(o.run);
  notice_best(o.run, model);
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
  // Reads new data as training reads its validation part.
  const DataExamples examples =
      o.data.empty()
          ? own_validation(o, model)
          : open_examples(o.data, schema,
                          {.unseen = Unseen::as_missing, .skip_broken = o.skip_broken, .max_pixels = o.max_pixels});
  if (examples.skipped > 0) notice_skipped(o.data, examples.skipped);
  if (examples.unseen > 0) {
    notice(fmt::format("{}: {} without a counterpart in training, taken as missing", o.data,
                       count_of(examples.unseen, "cell")));
  }
  check(text || examples.labeled, "--data {}: has no labels to compare with, expected the target beside the inputs",
        o.data);
  const Outcomes outcomes = outcomes_of(model, examples, o.batch_size);
  if (schema.task == lockstep::TaskKind::regression) {
    const double squared = outcomes.squared / outcomes.numbers;
    print_out("mean_absolute_error: {:.6g}\nmean_squared_error: {:.6g}\nroot_mean_squared_error: {:.6g}\n",
              outcomes.absolute / outcomes.numbers, squared, std::sqrt(squared));
    if (schema.outputs == 1) print_out("r2: {:.4f}\n", r2_score(outcomes.examples));
    print_worst(outcomes, examples.names, o.worst, "errors", [&](const ExampleOutcome& e) {
      return fmt::format("{}, expected {}", shortest_text(e.values.at(0), schema, 0),
                         shortest_text(e.targets.at(0), schema, 0));
    });
    return 0;
  }
  check(!text || outcomes.labels > 0, "a text without an example, expected a longer one");
  print_out("test acc: {:.4f} ({:.0f} of {:.0f})\n", outcomes.right / outcomes.labels, outcomes.right, outcomes.labels);
  if (text) {
    print_out("perplexity: {:.4f}\n", std::exp(outcomes.loss / outcomes.labels));
    return 0;
  }
  const std::vector<std::string> names = shown_names(schema.classes);
  print_classes(outcomes.confusion, names);
  print_out("{}", confusion_text("confusion_matrix", outcomes.confusion, names));
  print_worst(outcomes, examples.names, o.worst, "losses", [&](const ExampleOutcome& e) {
    return fmt::format("{} as {}", names.at(static_cast<std::size_t>(e.truth)),
                       names.at(static_cast<std::size_t>(e.said)));
  });
  if (!o.confusion.empty()) write_file_atomically(o.confusion, confusion_svg(outcomes.confusion, names));
  return 0;
}

}  // namespace lockstep::app
