#include "lockstep/task/run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/file.h"
#include "lockstep/base/option_error.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/weights_change.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/models.h"
#include "lockstep/models/resnet.h"
#include "lockstep/task/data_source.h"

namespace lockstep {
namespace {

constexpr std::string_view kTorchvisionModels = "torchvision:";
constexpr std::string_view kRunFile = "run.json";
constexpr int kRunVersion = 2;
constexpr std::size_t kLargestRunFile = std::size_t{1} << 30, kLargestOptions = std::size_t{1} << 20;

bool has_rows(const DataSchema& schema) { return schema.input.size() == 1; }

// Upper bound on the number of tensors in a folder's checkpoints: a header takes 40 bytes or more for each tensor.
std::uint64_t most_tensors(const std::filesystem::path& folder) {
  constexpr std::uint64_t kLeastEntry = 40;
  std::uint64_t most = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::filesystem::path file = entry->path() / "weights.safetensors";
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(file, unknown)) continue;
    std::uint64_t header = 0;  // its length, little-endian
    std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
    const std::uint64_t size = std::filesystem::file_size(file, unknown);
    most = std::max(most, std::min(header, unknown ? 0 : size) / kLeastEntry);
  }
  return most;
}

// Throws if the weights have too few tensors for the layers: a few bytes of run.json can describe minutes of work.
void check_layers(const std::filesystem::path& file, const RunDescription& run, const std::filesystem::path& weights) {
  const DataSchema& schema = run.schema;
  const TaskModel& model = run.model;
  const std::uint64_t tensors = most_tensors(weights);
  if (tensors == 0) read_checkpoint(weights);  // says why there are none
  std::uint64_t layers = model.hidden.size() + static_cast<std::uint64_t>(std::max<std::int64_t>(model.layers, 0));
  if (schema.table) layers += schema.table->vocabularies().size();
  check(layers <= tensors, "{}: a model of {} layers and categories, the weights have at most {} tensors",
        file.string(), layers, tensors);
}

// Returns the checkpoint in the folder. Throws if run.json describes another run, because outputs would be taken for
// other classes or units. Older run.json have no recipe: takes the checkpoint's.
CheckpointContents described_checkpoint(const std::filesystem::path& file, RunDescription& run,
                                        const std::filesystem::path& weights) {
  CheckpointContents checkpoint = read_checkpoint(weights);
  if (run.recipe == Recipe()) run.recipe = recipe_of(checkpoint);
  try {
    check_recipe(checkpoint, run.recipe);
  } catch (const RecipeMismatch& error) {
    fail("{}: describes another run than that of the weights ({}). Resume that run for a step, which writes it again",
         file.string(), error.what());
  }
  return checkpoint;
}

// Returns the model with the weights of the checkpoint.
std::shared_ptr<Module> with_weights(std::shared_ptr<Module> model, CheckpointContents checkpoint) {
  model->devices();  // places it, because nobody did
  for (ParameterChange& change : weights_change(std::move(checkpoint), *model)) change.commit();
  return model;
}

// f32 for a recipe of a version that trained in nothing else.
DType trained_dtype(const Recipe& recipe) {
  const Recipe::Value* const entry = recipe.find("dtype");
  if (entry == nullptr) return DType::f32;
  const std::string* const text = entry->as<std::string>();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    if (text != nullptr && *text == name(dtype)) return dtype;
  }
  fail("run: the recipe's dtype is {}, expected f32, f64, bf16, or f16", entry->json());
}

std::string shape_text(const DataSchema& schema) { return Shape(schema.input).str(); }

std::unique_ptr<Module> make_language_model(const DataSchema& schema, const TaskModel& model) {
  const bool gpt = model.name == "gpt";
  check(schema.input.size() == 1 && model.layers >= 1 && model.width >= 1 && (!gpt || model.heads >= 1),
        "model {}: {} layers of {} features, {} heads, expected at least 1 of each", model.name, model.layers,
        model.width, model.heads);
  if (gpt) {
    return std::make_unique<GPT>(GPTOptions{.vocab_size = schema.outputs,
                                            .block_size = schema.input[0],
                                            .n_layer = model.layers,
                                            .n_head = model.heads,
                                            .n_embd = model.width,
                                            .dropout = model.dropout,
                                            .dtype = model.dtype});
  }
  return std::make_unique<LstmLanguageModel>(LstmLanguageModelOptions{.vocab_size = schema.outputs,
                                                                      .embedding_dim = model.width,
                                                                      .hidden_size = model.width,
                                                                      .num_layers = model.layers,
                                                                      .dropout = model.dropout,
                                                                      .dtype = model.dtype});
}

}  // namespace

std::string default_task_model(const DataSchema& schema) {
  if (schema.format == DataFormat::text) return "gpt";
  return has_rows(schema) ? "mlp" : "resnet18";
}

std::unique_ptr<Module> make_task_model(const DataSchema& schema, const TaskModel& model) {
  const std::string& name = model.name;
  check(model.hidden.empty() || name == "mlp", "model {}: hidden layers are only for mlp", name);
  check(std::ranges::all_of(model.hidden, [](std::int64_t n) { return n > 0; }),
        "model mlp: a hidden layer of less than 1 unit");
  const bool language = name == "gpt" || name == "lstm", text = schema.format == DataFormat::text;
  check(language == text, "model {}: the data are {}, expected {}", name, text ? "a text" : "no text",
        text ? "gpt or lstm" : "a text for gpt and lstm");
  if (language) return make_language_model(schema, model);
  const std::vector<std::string> of_pictures = model_names();
  check(name.starts_with(kTorchvisionModels) || std::ranges::find(of_pictures, name) != of_pictures.end(),
        "unknown model {}: expected {}, gpt, lstm, or torchvision: and resnet18, resnet34, or resnet50", name,
        fmt::join(of_pictures, ", "));
  if (name == "mlp" && has_rows(schema)) {
    TableMlpOptions options = table_mlp_options(schema);
    if (!model.hidden.empty()) options.hidden = model.hidden;
    return std::make_unique<TableMlp>(options);
  }
  if (name == "mlp") return model.hidden.empty() ? mlp(schema.outputs) : mlp(schema.outputs, model.hidden);
  check(schema.input.size() == 3,
        "model {}: examples are {}, expected pictures [channels, height, width]; mlp takes both", name,
        shape_text(schema));
  constexpr std::int64_t kLeastOfLeNet = 12;
  check_option(name != "lenet" || std::min(schema.input[1], schema.input[2]) >= kLeastOfLeNet, "image_size",
               "model lenet: pictures of {} x {}, expected at least {} x {} (image_size)", schema.input[1],
               schema.input[2], kLeastOfLeNet, kLeastOfLeNet);
  if (!name.starts_with(kTorchvisionModels)) return make_model(name, schema.outputs);
  const std::string kind = name.substr(kTorchvisionModels.size());
  check(kind == "resnet18" || kind == "resnet34" || kind == "resnet50",
        "unknown model {}: expected torchvision:resnet18, torchvision:resnet34, or torchvision:resnet50", name);
  ResNetOptions options{.num_classes = schema.outputs, .in_channels = schema.input[0]};
  if (kind != "resnet18") options.layers = {3, 4, 6, 3};
  options.bottleneck = kind == "resnet50";
  return std::make_unique<ResNet>(options);
}

Initializer task_initializer(const DataSchema& schema, const TaskModel& model) {
  const KaimingUniform default_of_layers({.a = std::sqrt(5.0)});
  if (model.name.starts_with(kTorchvisionModels)) {
    // Like torchvision's initial values, but biases begin at 0.
    return [=](const Array& parameter, RandomKey key) {
      if (parameter.shape().dim() == 4) {
        KaimingNormal({.mode = FanMode::fan_out})(parameter, key);
      } else {
        default_of_layers(parameter, key);
      }
    };
  }
  if (model.name == "gpt") return Normal{0.02};
  if (model.name == "lstm") return Uniform(1 / std::sqrt(static_cast<double>(model.width)));
  if (model.name == "mlp" && has_rows(schema)) return default_of_layers;
  return model_initializer(model.name);
}

void write_run(const std::filesystem::path& folder, const RunDescription& run) {
  using nlohmann::ordered_json;
  ordered_json model{{"name", run.model.name}, {"hidden", run.model.hidden}};
  if (run.model.layers > 0) {
    model.update({{"layers", run.model.layers}, {"width", run.model.width}, {"heads", run.model.heads}});
  }
  ordered_json json{{"version", kRunVersion}};
  if (!run.options.empty()) json["options"] = parse_json<ordered_json>(run.options);
  if (run.recipe != Recipe()) json["recipe"] = parse_json<ordered_json>(run.recipe.json());
  if (!run.validation_digest.empty()) json["validation_digest"] = run.validation_digest;
  json["schema"] = parse_json<ordered_json>(run.schema.json());
  json["model"] = std::move(model);
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / kRunFile, json.dump(1) + "\n");
}

RunDescription read_run(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kRunFile;
  std::error_code unknown;
  check(std::filesystem::is_directory(folder, unknown), "run {}: there is no such folder", folder.string());
  check(std::filesystem::exists(file, unknown), "run {}: has no run.json, which `lockstep train --save DIR` writes",
        folder.string());
  const std::string text = read_file(file, kLargestRunFile);
  try {
    const auto json = parse_json<nlohmann::json>(text);
    const nlohmann::json& version = json.at("version");
    const bool old = version == 1;  // without options and recipe, and the model's fields in the outermost object
    check(old || version == kRunVersion, "version {}, expected 1 or {}", excerpt(version), kRunVersion);
    const nlohmann::json& model = old ? json : json.at("model");
    RunDescription run{.schema = DataSchema::from_json(json.at("schema").dump()),
                       .model = {.name = model.at(old ? "model" : "name").get<std::string>(),
                                 .hidden = model.at("hidden").get<std::vector<std::int64_t>>(),
                                 .layers = model.value("layers", std::int64_t{0}),
                                 .width = model.value("width", std::int64_t{0}),
                                 .heads = model.value("heads", std::int64_t{0})},
                       .validation_digest = json.value("validation_digest", "")};
    if (json.contains("recipe")) run.recipe = Recipe::from_json(json.at("recipe").dump());
    if (json.contains("options")) {
      check(json.at("options").is_object(), "options are {}, expected an object", excerpt(json.at("options")));
      run.options = json.at("options").dump();
      check(run.options.size() <= kLargestOptions, "options of {} bytes, expected at most {}", run.options.size(),
            kLargestOptions);
    }
    return run;
  } catch (const std::exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

Run::Run(RunDescription description, const std::filesystem::path& weights)
    : description_(std::move(description)), weights_(weights),
      model_(make_task_model(description_.schema, description_.model)), predict_(model_, weights) {}

Run::Run(RunDescription description, CheckpointContents checkpoint)
    : description_(std::move(description)), weights_(checkpoint.path),
      model_(with_weights(make_task_model(description_.schema, description_.model), std::move(checkpoint))),
      predict_(model_) {}

Tensor answers_of(const Tensor& outputs, const DataSchema& schema) {
  if (schema.task != TaskKind::regression) return softmax(outputs, -1);
  const auto row = [](const std::vector<double>& values) { return Tensor::from(values, {std::ssize(values)}); };
  return outputs.to(DType::f64) * row(schema.target_stddev) + row(schema.target_mean);
}

Tensor Run::outputs_of(const Tensor& inputs) const {
  const Shape& shape = inputs.shape();
  const std::vector<std::int64_t>& input = schema().input;
  const bool fits =
      shape.dim() == static_cast<int>(input.size()) + 1 && std::equal(input.begin(), input.end(), shape.begin() + 1);
  check(fits, "run: inputs are {}, expected [N, ..] with {} behind N", inputs.describe(), shape_text(schema()));
  const NoGradGuard no_history;
  const DType dtype = description_.model.dtype;
  const Tensor outputs = predict_(is_floating(inputs.dtype()) ? inputs.to(dtype) : inputs);
  return is_half_dtype(outputs.dtype()) ? outputs.to(DType::f32) : outputs;
}

Tensor Run::operator()(const Tensor& inputs) const {
  const NoGradGuard no_history;
  return answers_of(outputs_of(inputs), schema());
}

Run load_run(const std::filesystem::path& folder, std::optional<DType> dtype) {
  RunDescription run = read_run(folder);
  std::error_code unknown;
  const bool has_best = std::filesystem::is_directory(folder / "best", unknown);
  const std::filesystem::path weights = has_best ? folder / "best" : folder;
  check_layers(folder / kRunFile, run, weights);
  CheckpointContents checkpoint = described_checkpoint(folder / kRunFile, run, weights);
  run.model.dtype = dtype ? *dtype : trained_dtype(run.recipe);
  return {std::move(run), std::move(checkpoint)};
}

}  // namespace lockstep
