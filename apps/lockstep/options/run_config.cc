#include "apps/lockstep/options/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <type_traits>

#include "apps/lockstep/learning_task.h"
#include "apps/lockstep/options/config_file.h"
#include "apps/lockstep/options/config_text.h"
#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/options/own_data.h"
#include "lockstep/backend/backend.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep::app {
namespace {

std::string toml_list(const std::vector<std::string>& values) {
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back(toml_string(value));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

bool is_kept(const TrainOptions& o, const OptionRow& row) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, row.name) != names.end();
  };
  if (row.group.empty() || row.group == "Checkpoints" || row.group == "Output") return false;
  if (is({"--summary"})) return false;
  const bool given = std::ranges::find(o.given, row.name) != o.given.end();
  if (row.group == "Devices") return given;
  if (is({"--context", "--layers", "--width", "--dropout"})) return o.is_language_model();
  const auto is_one_of = [&](const std::vector<std::string>& names) {
    return std::ranges::find(names, row.name) != names.end();
  };
  if (!o.own_data && is_one_of(own_data_options()) && (o.is_language_model() || !is_one_of(picture_options())))
    return false;
  if (o.is_regression() && is({"--class-weights", "--label-smoothing"})) return false;
  if (o.is_language_model() && is({"--class-weights"})) return false;
  if (is({"--heads"})) return o.model == "gpt";
  if (is({"--watch", "--min-delta"})) return o.patience > 0;
  return true;
}

// "" where the option has no value.
std::string value_of(const TrainOptions& o, const OptionRow& row) {
  return std::visit(
      [&](auto field) -> std::string {
        const auto& value = o.*field;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return value.empty() ? "" : toml_string(value);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return value.empty() ? "" : toml_list(value);
        } else if constexpr (requires { value.has_value(); }) {
          return value ? fmt::format("{}", *value) : "";
        } else {
          return fmt::format("{}", value);
        }
      },
      row.field);
}

}  // namespace

std::string run_config(const TrainOptions& options, const ToolJob& job, const Recipe& recipe) {
  TrainOptions o = options;
  o.shards = job.shards;
  o.data = data_path(o);
  if (!o.init_from.empty()) o.init_from = std::filesystem::absolute(o.init_from).string();
  if (o.dtype == "f16" && !o.loss_scale) o.loss_scale = LossScalerOptions{}.initial_scale;
  if (o.patience > 0 && o.watch.empty()) o.watch = o.default_watch();
  if (o.own_data) {
    const DataSchema& schema = o.source->schema;
    o.format = name(schema.format);
    o.task = name(schema.task);
    if (schema.table) o.target = schema.table->target;
    // Others keep their own size, which no option names.
    const auto& input = schema.input;
    if (schema.format == DataFormat::images && input[1] == input[2]) o.image_size = input[1];
  }
  if (state_of(job.devices()[0], "options of the run").backend->threads_decide_bits(job.dtype)) {
    o.threads_per_shard = job.runtime().threads_per_shard();
    o.given.emplace_back("--threads-per-shard");
  }
  std::string text = fmt::format(
      "# The options of a run, recipe {:.8}: `lockstep train --config FILE` repeats it.\n"
      "# Those that name where to write, such as save, are left out.\n",
      recipe_hash(recipe));
  std::string group;
  for (const OptionRow& row : option_rows()) {
    if (!is_kept(o, row)) continue;
    const std::string value = value_of(o, row);
    // Without a value of their own, these have 0, which the command line does not take.
    const bool may_be_open = row.name == "--limit-train" || row.name == "--limit-test" || row.name == "--image-size" ||
                             row.name == "--max-pixels";
    if (value.empty() || (may_be_open && value == "0")) continue;
    if (group != row.group) text += fmt::format("\n# {}\n", row.group);
    group = row.group;
    text += fmt::format("{} = {}\n", row.name.substr(2), value);
  }
  return text;
}

TrainOptions read_run_config(const std::string& folder, const std::vector<std::string>& more, bool with_weights) {
  const std::string file = (std::filesystem::path(folder) / "run.toml").string();
  std::error_code unknown;
  check(std::filesystem::exists(file, unknown), "run {}: has no run.toml, which says what its data were", folder);
  CLI::App app;
  CLI::App* const train = app.add_subcommand("train");
  TrainOptions options;
  options.add_to(*train);
  add_config_option(app);
  try {
    // Nobody asks the result where to write.
    std::vector<std::string> words{"train", "--config", file, "--allow-output"};
    words.insert(words.end(), more.begin(), more.end());
    Arguments arguments = with_config(app, words);
    std::erase_if(arguments.words, [&](const std::string& word) {
      return !with_weights && (word.starts_with("--init-from=") || word == "--partial");
    });
    app.parse(std::vector<std::string>{arguments.words.rbegin(), arguments.words.rend()});
  } catch (const CLI::ParseError& error) {
    fail("{}: {}", file, error.what());
  }
  options.choose_defaults(*train);
  return options;
}

void write_run_config(const TrainOptions& o, const ToolJob& job, const Recipe& recipe) {
  const std::filesystem::path file = std::filesystem::path(o.save) / "run.toml";
  std::error_code unknown;
  if (o.init_from.empty() && !o.start_weights.empty() && std::filesystem::exists(file, unknown)) return;
  std::filesystem::create_directories(o.save);
  write_file_atomically(file, run_config(o, job, recipe));
}

}  // namespace lockstep::app
