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
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/models.h"
#include "lockstep/models/resnet.h"
#include "lockstep/task/data_source.h"

namespace lockstep {
namespace {

constexpr std::string_view kTorchvisionModels = "torchvision:";
constexpr std::size_t kLargestRunFile = std::size_t{1} << 30;

bool has_rows(const DataSchema& schema) { return schema.input.size() == 1; }

// The most tensors that the checkpoints in a folder can hold: a header takes 40 bytes or more for each of them.
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

// A few bytes of run.json can describe layers whose making takes minutes. Each has a tensor in the weights.
void check_layers(const DataSchema& schema, const TaskModel& model, const std::filesystem::path& weights) {
  const std::uint64_t tensors = most_tensors(weights);
  if (tensors == 0) read_checkpoint(weights);  // says why there are none
  std::uint64_t layers = model.hidden.size() + static_cast<std::uint64_t>(std::max<std::int64_t>(model.layers, 0));
  if (schema.table) layers += schema.table->vocabularies().size();
  check(layers <= tensors, "a model of {} layers and categories, the weights have at most {} tensors", layers, tensors);
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
  check(name != "lenet" || std::min(schema.input[1], schema.input[2]) >= kLeastOfLeNet,
        "model lenet: pictures of {} x {}, expected at least {} x {} (image_size)", schema.input[1], schema.input[2],
        kLeastOfLeNet, kLeastOfLeNet);
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
    // As torchvision's, but biases begin at 0.
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

void write_run(const std::filesystem::path& folder, const DataSchema& schema, const TaskModel& model,
               const std::string& validation_digest) {
  nlohmann::ordered_json json{{"version", 1}, {"model", model.name}, {"hidden", model.hidden}};
  if (model.layers > 0) json.update({{"layers", model.layers}, {"width", model.width}, {"heads", model.heads}});
  if (!validation_digest.empty()) json["validation_digest"] = validation_digest;
  json["schema"] = parse_json<nlohmann::ordered_json>(schema.json());
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "run.json", json.dump(1) + "\n");
}

Run::Run(DataSchema schema, TaskModel model, const std::filesystem::path& weights, std::string validation_digest)
    : schema_(std::move(schema)), description_(std::move(model)), validation_digest_(std::move(validation_digest)),
      model_(make_task_model(schema_, description_)), predict_(model_, weights) {}

Tensor answers_of(const Tensor& outputs, const DataSchema& schema) {
  if (schema.task != TaskKind::regression) return softmax(outputs, -1);
  const auto row = [](const std::vector<double>& values) { return Tensor::from(values, {std::ssize(values)}); };
  return outputs.to(DType::f64) * row(schema.target_stddev) + row(schema.target_mean);
}

Tensor Run::outputs_of(const Tensor& inputs) const {
  const Shape& shape = inputs.shape();
  const bool fits = shape.dim() == static_cast<int>(schema_.input.size()) + 1 &&
                    std::equal(schema_.input.begin(), schema_.input.end(), shape.begin() + 1);
  check(fits, "run: inputs are {}, expected [N, ..] with {} behind N", inputs.describe(), shape_text(schema_));
  const NoGradGuard no_history;
  return predict_(inputs);
}

Tensor Run::operator()(const Tensor& inputs) const {
  const NoGradGuard no_history;
  return answers_of(outputs_of(inputs), schema_);
}

Run load_run(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "run.json";
  std::error_code unknown;
  check(std::filesystem::is_directory(folder, unknown), "run {}: there is no such folder", folder.string());
  check(std::filesystem::exists(file, unknown), "run {}: has no run.json, which `lockstep train --save DIR` writes",
        folder.string());
  const std::string text = read_file(file, kLargestRunFile);
  const bool has_best = std::filesystem::is_directory(folder / "best", unknown);
  const std::filesystem::path weights = has_best ? folder / "best" : folder;
  DataSchema schema;
  TaskModel model;
  std::string validation_digest;
  try {
    const auto json = parse_json<nlohmann::json>(text);
    check(json.at("version") == 1, "version {}, expected 1", excerpt(json.at("version")));
    model = {json.at("model").get<std::string>(), json.at("hidden").get<std::vector<std::int64_t>>()};
    model.layers = json.value("layers", std::int64_t{0});
    model.width = json.value("width", std::int64_t{0});
    model.heads = json.value("heads", std::int64_t{0});
    validation_digest = json.value("validation_digest", "");
    schema = DataSchema::from_json(json.at("schema").dump());
    check_layers(schema, model, weights);
  } catch (const std::exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
  return {std::move(schema), std::move(model), weights, std::move(validation_digest)};
}

}  // namespace lockstep
