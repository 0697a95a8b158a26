// A folder of `lockstep train --save DIR`, to use its model in a program.
//
//   const Run model = load_run("runs/7");
//   const DataExamples examples = open_examples("new.csv", model.schema());
//   Tensor probabilities = model(stack({examples.data->get(0)[0]}));  // [1, classes]
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/nn/initializers.h"
#include "lockstep/task/data_schema.h"
#include "lockstep/train/predictor.h"

namespace LOCKSTEP_API lockstep {

// A model for data of a schema, by its command-line name.
struct TaskModel {
  // resnet18, lenet, and torchvision:resnet18, torchvision:resnet34, torchvision:resnet50 for pictures; gpt, lstm for
  // texts; mlp for pictures and rows.
  std::string name = "mlp";
  // mlp: number of units of each hidden layer. Empty: 256 for pictures; 256 and 128 for rows.
  std::vector<std::int64_t> hidden{};
  // gpt and lstm: number of layers, and of features of each layer. gpt: number of attention heads.
  std::int64_t layers = 0, width = 0, heads = 0;
  // gpt and lstm, for training only: run.json does not store them.
  double dropout = 0;
  // The type in which the model computes. The recipe of a run has it.
  DType dtype = DType::f32;
};

// Makes the model with inputs and outputs of the schema. Throws for a name that is unknown or does not fit the data.
std::unique_ptr<Module> make_task_model(const DataSchema& schema, const TaskModel& model);
// Initializer that the tool uses for the model.
Initializer task_initializer(const DataSchema& schema, const TaskModel& model);
// "mlp" for rows, "resnet18" for pictures, "gpt" for texts.
std::string default_task_model(const DataSchema& schema);

// All that run.json says of a run.
struct RunDescription {
  DataSchema schema;
  TaskModel model;
  // DataSource::validation_digest; empty if the recipe's "data" covers the validation part.
  std::string validation_digest{};
  // Trainer::recipe(). A run that resume() continues has the same.
  Recipe recipe{};
  // Options of the program that trained, as a JSON object: `lockstep train` stores those of run.toml. Empty: none.
  std::string options{};
};

// Writes run.json: all that load_run() needs beside the weights, which Trainer's checkpoints in the folder have.
void write_run(const std::filesystem::path& folder, const RunDescription& run);
// Throws if the folder has no run.json, or one that does not fit. The weights may be absent.
RunDescription read_run(const std::filesystem::path& folder);

// Converts a network's outputs: logits to probabilities, and normalized values to the units of the data, in f64,
// because times, for example, are too large for f32.
Tensor answers_of(const Tensor& outputs, const DataSchema& schema);

// A trained model. Calls from several threads may run at the same time.
class Run {
 public:
  Run(RunDescription description, const std::filesystem::path& weights);
  // The same with the weights of a checkpoint that was read already.
  Run(RunDescription description, CheckpointContents checkpoint);

  const RunDescription& description() const { return description_; }
  const DataSchema& schema() const { return description_.schema; }
  // Where its weights came from; for load_run(), the checkpoint.
  const std::filesystem::path& weights() const { return weights_; }
  // The network alone, for logits or normalized values.
  Module& model() const { return *model_; }
  // Returns the network's own outputs: logits, or normalized values. Inputs are as for operator(). Computes in
  // description().model.dtype and returns f32 instead of bf16 and f16.
  Tensor outputs_of(const Tensor& inputs) const;
  // Takes inputs [N, ...] as open_examples() makes them: schema().input comes after N. Returns answers_of() the outputs
  // where the inputs are: for classes, their probabilities [N, classes]; for regression, values [N, outputs]; for
  // texts, the probabilities of each next character [N, context, characters].
  Tensor operator()(const Tensor& inputs) const;

 private:
  RunDescription description_;
  std::filesystem::path weights_;
  std::shared_ptr<Module> model_;
  Predictor<Module> predict_;
};

// Takes the weights of the best epoch if the folder has them (--save-best), else those of the newest checkpoint. Throws
// if the folder has no run.json, no checkpoint, or one that does not fit, such as one of another recipe. If run.json
// has no recipe, as those of older versions, the description has the checkpoint's. Computes in `dtype`; if it is not
// given, in that of the training, whose tests measured the model so.
Run load_run(const std::filesystem::path& folder, std::optional<DType> dtype = std::nullopt);

}  // namespace lockstep
