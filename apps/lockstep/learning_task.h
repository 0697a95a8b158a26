// Models of the tool learn the classes of pictures, or the next character of a text. That decides the examples, the
// model's outputs, the loss, and the metrics.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common_options.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/task/data_schema.h"
#include "lockstep/train/evaluate.h"

namespace lockstep::app {

struct Examples {
  std::shared_ptr<const Dataset> data;
  // Ten kinds of clothes, or the characters that occur.
  std::int64_t classes = 10;
  // By class; empty if the data do not say.
  std::vector<std::string> class_names{};
  // The hash covers the whole file, even with --limit-train or --limit-test.
  std::function<std::string()> sha256{};
  // The number of examples of each class, also with --limit-train. Of texts: none.
  std::function<std::vector<std::int64_t>()> counts{};
  // How examples are made of data, for run.json.
  std::function<DataSchema()> schema{};
  // What examples are called; empty for texts.
  std::function<std::string(std::int64_t index)> name{};
  // Of Fashion-MNIST: the transforms of training examples, for the recipe.
  std::string transforms{};
};

// The last tenth of a text is its test data.
Examples load_examples(const CommonOptions& options, MnistPart part);
// The names of the examples' classes: Examples::class_names, or those of Fashion-MNIST if the examples are that, which
// takes a hash.
std::vector<std::string> known_class_names(const Examples& examples);
// --data, or the folder of Fashion-MNIST that stands for it, as an absolute path.
std::string data_path(const CommonOptions& options);
// Writes a notice if --limit-train or --limit-test exceeds the number of examples.
void notice_limit(const CommonOptions& options, MnistPart part, const Examples& examples);
// Writes a notice if the checkpoint --init-from of a language model learned another text than --data.
void notice_other_text(const CommonOptions& options, const Examples& examples);
// A text in the recipe of a checkpoint, of a folder of them, or of the checkpoint of a weights.safetensors; none in
// another file of weights.
std::optional<std::string> recipe_text(const std::string& weights, std::string_view name);
// Writes a notice if the run --init-from learned as many other classes, or other columns, than --data has.
void notice_other_schema(const CommonOptions& options);
// Placeholder examples of the same shapes, for timing and graphs.
Examples made_up_examples(const CommonOptions& options, std::int64_t count);

// dtype: what a language model computes in. The others take it from their input.
std::unique_ptr<Module> build_model(const CommonOptions& options, std::int64_t classes, DType dtype = DType::f32);
// A model on the job's devices, with initial weights from the seed or from the file.
std::unique_ptr<Module> make_initialized_model(const CommonOptions& options, const ToolJob& job, std::int64_t classes);

// Empty: the default of Trainer and of evaluate(), for pictures.
std::vector<Metric> make_metrics(const CommonOptions& options, std::int64_t classes);
// A confusion matrix with heads, without classes that do not occur, and the pairs that are confused most often.
std::string confusion_text(const std::string& name, const std::vector<std::vector<double>>& table,
                           const std::vector<std::string>& class_names);
// Empty: the default of Trainer.
std::function<Tensor(const Tensor& outputs, const Tensor& labels)> make_loss(const CommonOptions& options,
                                                                             double label_smoothing);

}  // namespace lockstep::app
