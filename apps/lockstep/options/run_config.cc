#include "apps/lockstep/options/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/lockstep/options/config_file.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/option_row.h"
#include "lockstep/backend/backend.h"
#include "lockstep/base/file.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/json_text.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep::app {
namespace {

using nlohmann::ordered_json;

bool is_kept(const TrainOptions& o, const OptionRow& row) {
  if (row.group == "Devices") return std::ranges::find(o.given, row.name) != o.given.end();
  if (row.name == "--watch" || row.name == "--min-delta") return o.trainer.watch.patience > 0;
  return row.decides_result() && fits(row.extras.only, o);
}

// Returns null if the option has no value.
ordered_json value_of(TrainOptions& o, const OptionRow& row) {
  const auto text = [](const std::string& value) {
    return value.empty() ? ordered_json() : ordered_json(to_json_text(value));
  };
  return std::visit(
      [&](const auto& field) -> ordered_json {
        if constexpr (requires { field.name; }) {
          return text(field.name(o));
        } else {
          const auto& value = field(o);
          if constexpr (requires { text(value); }) {
            return text(value);
          } else if constexpr (requires { value.has_value(); }) {
            return value ? ordered_json(*value) : ordered_json();
          } else if constexpr (requires { value.size(); }) {
            ordered_json texts;
            for (const auto& one : value) texts.push_back(to_json_text(fmt::format("{}", one)));
            return texts;
          } else {
            return row.clears() ? ordered_json(!value) : ordered_json(value);
          }
        }
      },
      row.field);
}

// The options that a folder has of its run: those in run.json, or of an older version, in run.toml.
struct KeptOptions {
  std::string file, json;

  std::vector<ConfigEntry> entries() const {
    return json.empty() ? parse_config(read_file(file, kLargestConfig), file) : parse_options(json);
  }
};

KeptOptions kept_options(const std::filesystem::path& folder) {
  const std::filesystem::path toml = folder / "run.toml", json = folder / "run.json";
  std::error_code unknown;
  const std::string options = std::filesystem::exists(json, unknown) ? read_run(folder).options : "";
  const std::filesystem::path& file = options.empty() ? toml : json;
  check(std::filesystem::exists(file, unknown), "run {}: has no run.toml, which says what its data were",
        folder.string());
  return {file.string(), options};
}

// Takes --init-from and --partial of the run that this one continues. If its folder does not say them, as_toml() does.
void take_start(TrainOptions& o) {
  if (o.resume.empty() || o.start_weights.empty() || !o.init_from.empty()) return;
  std::filesystem::path checkpoint = std::filesystem::absolute(o.resume).lexically_normal();
  if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();
  const std::filesystem::path folder = checkpoint.parent_path();
  try {
    for (const ConfigEntry& entry :
         kept_options(folder.filename() == "best" ? folder.parent_path() : folder).entries()) {
      if (entry.key == "init-from") o.init_from = entry.values.at(0);
      if (entry.key == "partial") o.partial = entry.values.at(0) == "true";
    }
  } catch (const std::exception&) {
    return;
  }
}

ordered_json options_of(const TrainOptions& options, const ToolJob& job) {
  TrainOptions o = options;
  take_start(o);
  o.trainer.split.shards = job.shards;
  o.data = data_path(o);
  if (!o.init_from.empty()) o.init_from = std::filesystem::absolute(o.init_from).string();
  if (o.trainer.dtype == DType::f16 && !o.loss_scale) o.loss_scale = LossScalerOptions{}.initial_scale;
  if (o.trainer.watch.patience > 0 && o.trainer.watch.metric.empty()) o.trainer.watch.metric = o.default_watch();
  if (o.own_data) {
    const DataSchema& schema = o.source->schema;
    o.reading.format = schema.format;
    o.reading.task = schema.task;
    if (schema.table) o.reading.target = schema.table->target;
    // Other pictures keep a size that no option can name.
    const auto& input = schema.input;
    if (schema.format == DataFormat::images && input[1] == input[2]) o.reading.image_size = input[1];
  }
  if (state_of(job.devices()[0], "options of the run").backend->threads_decide_bits(job.dtype)) {
    o.threads_per_shard = job.runtime().threads_per_shard();
    o.given.emplace_back("--threads-per-shard");
  }
  ordered_json values = ordered_json::object();
  for (const OptionRow& row : option_rows()) {
    if (!is_kept(o, row)) continue;
    ordered_json value = value_of(o, row);
    // A field of these is 0 if the option is not set, but the command line does not accept 0.
    const bool may_be_open = row.name == "--limit-train" || row.name == "--limit-test" || row.name == "--image-size" ||
                             row.name == "--max-pixels";
    if (!value.is_null() && !(may_be_open && value == 0)) values[row.name.substr(2)] = std::move(value);
  }
  return values;
}

// run_key() names these itself, or the recipe has what they do: the digest, number, schema, and transforms of the
// examples, the initial weights, what is frozen, groups of parameters, and kernels of the devices in use.
constexpr std::string_view kInKey[] = {
    "--epochs",     "--max-steps",   "--patience",      "--watch",      "--min-delta",    "--limit-test",
    "--metrics",    "--limit-train", "--data",          "--format",     "--target",       "--ignore",
    "--categories", "--task",        "--header",        "--delimiter",  "--augment",      "--random-resized-crop",
    "--flip",       "--random-crop", "--vertical-flip", "--rotation",   "--color-jitter", "--random-erasing",
    "--normalize",  "--mean",        "--std",           "--image-size", "--skip-broken",  "--max-pixels",
    "--hash-data",  "--init-from",   "--partial",       "--freeze",     "--head-lr",      "--tf32",
    "--direct-conv"};

bool is_in_key(const OptionRow& row, const Recipe& recipe) {
  return std::ranges::find(kInKey, row.name) != std::end(kInKey) ||
         std::ranges::any_of(recipe, [&](const auto& entry) { return find_option_of_entry(entry.first) == &row; });
}

std::string as_toml(const RunDescription& run) {
  const auto options = parse_json<ordered_json>(run.options);
  const Recipe::Value* start = options.contains("init-from") ? nullptr : run.recipe.find("init_from");
  std::string text = fmt::format(
      "# The options of a run, recipe {:.8}: `lockstep train --config FILE` repeats it{}.\n"
      "# Those that name where to write, such as save, are left out.\n",
      recipe_hash(run.recipe), start ? ", with --init-from of the weights " + start->json() : "");
  std::string group;
  for (const auto& [name, value] : options.items()) {
    const std::string of = find_option_row("--" + name)->group;
    if (group != of) text += fmt::format("\n# {}\n", of);
    group = of;
    text += fmt::format("{} = {}\n", name, toml_value(value));
  }
  return text;
}

}  // namespace

RunDescription describe_run(const TrainOptions& o, const ToolJob& job, const Recipe& recipe) {
  return {.schema = o.source->schema,
          .model = task_model(o),
          .validation_digest = o.source->validation_digest,
          .recipe = recipe,
          .options = options_of(o, job).dump()};
}

std::string run_key(const TrainOptions& o, const RunDescription& run) {
  const TrainerOptions& t = o.trainer;
  const std::string* data = run.recipe.at("data").as<std::string>();
  // Uses the options as given: for --save-best, --watch and --min-delta count, too.
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {}", recipe_hash(run.recipe), t.epochs, t.max_steps, t.watch.patience,
                  t.watch.metric, t.watch.min_delta, o.reading.limit_validation, fmt::join(o.metrics, ","),
                  run.validation_digest.empty() && data ? *data : run.validation_digest);
  // Any other option counts if it is set, so that no new one is forgotten. While it is not, older keys stay.
  TrainOptions mine = o, open;
  for (const OptionRow& row : option_rows()) {
    if (!row.decides_result() || is_in_key(row, run.recipe)) continue;
    const ordered_json value = value_of(mine, row);
    if (value != value_of(open, row)) text += fmt::format(" {}={}", row.name, value.dump());
  }
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

TrainOptions read_run_config(const std::string& folder, const std::vector<std::string>& more, bool with_weights) {
  const KeptOptions kept = kept_options(folder);
  CLI::App app;
  CLI::App* const train = app.add_subcommand("train");
  TrainOptions options;
  options.add_to(*train);
  add_config_option(app);
  try {
    // Allows all outputs, because the caller ignores where these options write.
    std::vector<std::string> words{"train", "--allow-output"};
    words.insert(words.end(), more.begin(), more.end());
    Arguments arguments = with_entries(app, words, kept.entries(), kept.file);
    std::erase_if(arguments.words, [&](const std::string& word) {
      return !with_weights && (word.starts_with("--init-from=") || word == "--partial");
    });
    app.parse(std::vector<std::string>{arguments.words.rbegin(), arguments.words.rend()});
  } catch (const CLI::ParseError& error) {
    fail("{}: {}", kept.file, error.what());
  }
  options.choose_defaults(*train);
  return options;
}

void RunFiles::start(const TrainingStart& start) {
  recipe_ = start.recipe;
  std::error_code unknown;
  const bool described = std::filesystem::exists(std::filesystem::path(options_.save) / "run.json", unknown);
  if (start.position.step == 0 || !described) write();
}

void RunFiles::update(std::int64_t) {
  if (!written_) write();
}

void RunFiles::write() {
  const RunDescription run = describe_run(options_, job_, *recipe_);
  write_run(options_.save, run);
  write_file_atomically(std::filesystem::path(options_.save) / "run.toml", as_toml(run));
  written_ = true;
}

}  // namespace lockstep::app
