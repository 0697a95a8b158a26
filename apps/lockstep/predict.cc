#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/eval_run.h"
#include "apps/lockstep/options/common_options.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "apps/lockstep/utf8_text.h"
#include "lockstep/base/count_of.h"
#include "lockstep/base/file.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/text.h"
#include "lockstep/models/language_model.h"
#include "lockstep/task/data_source.h"
#include "lockstep/task/outcomes.h"
#include "lockstep/task/run.h"

namespace lockstep::app {
namespace {

struct PredictOptions {
  std::string run, format, unseen = "missing";
  bool skip_broken = false;
  std::int64_t max_pixels = 0;
  // Options for texts:
  GenerateOptions text{.new_tokens = 200};
  std::uint64_t seed = 0;
  std::vector<std::string> paths;
  std::int64_t batch_size = 64;
};

// Returns a cell of a table, in quotes if it needs them.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::string csv_head(const DataSchema& schema) {
  if (schema.task == lockstep::TaskKind::regression) {
    if (schema.outputs == 1) return "example,value\n";
    std::string head = "example";
    for (std::int64_t k = 0; k < schema.outputs; ++k) head += fmt::format(",value_{}", k);
    return head + "\n";
  }
  std::string head = "example,class,probability";
  for (const std::string& name : schema.classes) head += "," + csv_cell(name);
  return head + "\n";
}

std::string class_name(const DataSchema& schema, std::size_t c) {
  return c < schema.classes.size() ? schema.classes[c] : fmt::format("{}", c);
}

// Prints probabilities with the digits of f32.
std::string csv_number(const DataSchema& schema, double value, std::size_t k) {
  return schema.task == lockstep::TaskKind::classification ? fmt::format("{}", static_cast<float>(value))
                                                           : shortest_text(value, schema, k);
}

double rounded_value(const DataSchema& schema, double value, std::size_t k) {
  const std::string text = shortest_text(value, schema, k);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// `best` is the class that the model says.
std::string csv_line(const DataSchema& schema, const std::string& example, std::span<const double> values,
                     std::size_t best) {
  std::string line = csv_cell(example);
  if (schema.task == lockstep::TaskKind::classification) {
    line += fmt::format(",{},{}", csv_cell(class_name(schema, best)), csv_number(schema, values[best], best));
  }
  for (std::size_t k = 0; k < values.size(); ++k) line += "," + csv_number(schema, values[k], k);
  return line + "\n";
}

std::string json_line(const DataSchema& schema, const std::string& example, std::span<const double> values,
                      std::size_t best) {
  nlohmann::ordered_json line{{"example", utf8_text(example)}};
  if (schema.task == lockstep::TaskKind::classification) {
    const auto name_of = [&](std::size_t c) { return utf8_text(class_name(schema, c)); };
    line["class"] = name_of(best);
    line["probability"] = values[best];
    for (std::size_t c = 0; c < values.size(); ++c) {
      std::string name = name_of(c);
      if (line["probabilities"].contains(name))
        name += fmt::format(" ({})", c);  // they differ in bytes that are no UTF-8
      line["probabilities"][name] = values[c];
    }
  } else if (values.size() == 1) {
    line["value"] = rounded_value(schema, values[0], 0);
  } else {
    for (std::size_t k = 0; k < values.size(); ++k) line["values"].push_back(rounded_value(schema, values[k], k));
  }
  return line.dump() + "\n";
}

// Returns "new.csv:7" for a row, "new/1.jpg" for a picture.
std::string example_name(const DataSchema& schema, const std::string& path, const std::string& name) {
  if (!schema.image) return fmt::format("{}:{}", path, name);
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown) ? (std::filesystem::path(path) / name).string() : path;
}

// Continues each text. The same model, text, and seed give the same result on every machine.
void continue_texts(const PredictOptions& o, const Run& model) {
  auto* language = dynamic_cast<LanguageModel*>(&model.model());
  check(language != nullptr, "run {}: its model continues no text", o.run);
  std::string known;
  for (const std::string& character : model.schema().classes) known += character;
  const CharacterSet characters(known);
  GenerateOptions options = o.text;
  options.seed = o.seed;
  for (const std::string& path : o.paths) {
    constexpr std::size_t kLongestPrompt = std::size_t{1} << 30;
    const std::string prompt = read_file(path, kLongestPrompt);
    std::vector<std::int64_t> ids;
    try {
      ids = characters.encode(prompt);
    } catch (const Error& error) {
      fail("{}: {}", path, error.what());
    }
    check(!ids.empty(), "{}: empty, expected a text to continue", path);
    const std::string text = characters.decode(language->generate(std::move(ids), options));
    if (o.format == "json") {
      const nlohmann::ordered_json line{{"example", path}, {"text", text}};
      print_data(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    } else {
      print_data(text + "\n");
    }
  }
}

int predict(const CLI::App& app, const PredictOptions& o) {
  const Run model = load_run(o.run);
  notice_best(o.run, model);
  const DataSchema& schema = model.schema();
  const bool text = schema.task == lockstep::TaskKind::language;
  for (const char* name : {"--characters", "--temperature", "--top-k", "--seed"}) {
    if (!text && is_given(app, name)) throw UsageError(fmt::format("{}: only for the run of a text", name));
  }
  for (const char* name : {"--unseen", "--skip-broken", "--max-pixels", "--batch-size"}) {
    if (text && is_given(app, name)) throw UsageError(fmt::format("{}: not for the run of a text", name));
  }
  if (text) {
    if (o.format == "csv") throw UsageError("--format csv: a text has no columns, expected json, or no --format");
    continue_texts(o, model);
    return 0;
  }
  const bool json = o.format == "json";
  bool begun = json;
  for (const std::string& path : o.paths) {
    const DataExamples examples = open_examples(path, schema,
                                                {.unseen = o.unseen == "missing" ? Unseen::as_missing : Unseen::error,
                                                 .skip_broken = o.skip_broken,
                                                 .labels = false,
                                                 .max_pixels = o.max_pixels});
    if (examples.skipped > 0) notice_skipped(path, examples.skipped);
    if (examples.unseen > 0) {
      notice(fmt::format("{}: {} without a counterpart in training, taken as missing (--unseen error refuses them)",
                         path, count_of(examples.unseen, "cell")));
    }
    if (!std::exchange(begun, true)) print_data(csv_head(schema));
    std::size_t number = 0;
    DataLoader loader(examples.data, {.batch_size = o.batch_size, .workers = loader_threads(schema)});
    for (const Example& batch : loader) {
      const Tensor outputs = model.outputs_of(batch.at(0));
      const std::vector<double> logits = outputs.to(DType::f64).to_vector<double>();
      const std::vector<double> values = answers_of(outputs, schema).to(DType::f64).to_vector<double>();
      const auto each = static_cast<std::size_t>(schema.outputs);
      for (std::size_t i = 0; i < values.size(); i += each) {
        const std::span<const double> mine(values.data() + i, each);
        const std::string example = example_name(schema, path, examples.names.at(number++));
        check(std::ranges::all_of(mine, [](double v) { return std::isfinite(v); }),
              "{}: the model computes numbers that are not finite", example);
        // Different logits may have equal probabilities in f32.
        const auto best = static_cast<std::size_t>(class_of(std::span(logits.data() + i, each)));
        print_data(json ? json_line(schema, example, mine, best) : csv_line(schema, example, mine, best));
      }
    }
  }
  return 0;
}

}  // namespace

Command add_predict(CLI::App& parent) {
  auto* app = parent.add_subcommand(
      "predict", "Predict with the model of a run: classes or numbers for new data, or how texts go on");
  auto o = std::make_shared<PredictOptions>();
  app->add_option("--run", o->run, "The folder --save of the training run")->required()->type_name("DIR");
  app->add_option("PATHS", o->paths, "Data of the kind that the model was trained on; a table may lack the target")
      ->required();
  app->add_option("--format", o->format,
                  "csv: a line of names first; json: an object per line [csv; texts: as they are]")
      ->check(CLI::IsMember({"csv", "json"}));
  app->add_option(
         "--unseen", o->unseen,
         "What to do with a category or a missing cell where training data have none: fail, or count it as missing")
      ->check(CLI::IsMember({"error", "missing"}))
      ->capture_default_str();
  app->add_option("--batch-size", o->batch_size, "Examples per batch; decides memory and speed only")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app->add_flag("--skip-broken", o->skip_broken, "Leave out rows and pictures that cannot be read, and say how many");
  add_max_pixels(*app, o->max_pixels);
  app->add_option("--characters", o->text.new_tokens, "Texts: how many characters to add")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  app->add_option("--temperature", o->text.temperature, "Texts: below 1, likely characters become likelier")
      ->check(number_in(1e-6, 1e6))
      ->capture_default_str();
  app->add_option("--top-k", o->text.top_k,
                  "Texts: draw among so many likely characters; 1: always the likeliest [all]")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--seed", o->seed, "Texts: the same seed draws the same characters")->capture_default_str();
  return [o, app] {
    check_single_process("predict");
    return predict(*app, *o);
  };
}

}  // namespace lockstep::app
