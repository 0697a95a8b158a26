// What a model of the tool learns: the data, the model that fits them, and the metrics.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/options/common_options.h"
#include "lockstep/task/data_source.h"
#include "lockstep/train/evaluate.h"

namespace lockstep::app {

// The data of --data, or Fashion-MNIST: those that choose_defaults() has read already, or else read now.
std::shared_ptr<const DataSource> load_data(const CommonOptions& options);
// Fashion-MNIST, and MNIST and others in its place: 28 x 28 bytes in 0 to 1, ten classes, a part for tests. Their
// recipes name neither schema nor split.
bool is_plain_mnist(const DataSource& data);
// --data, or the folder of Fashion-MNIST that stands for it, as an absolute path.
std::string data_path(const CommonOptions& options);
// Writes notices if --limit-train or --limit-test exceeds the number of examples, or leaves out a class.
void notice_limits(const CommonOptions& options, const DataSource& data);
// Writes a notice if the checkpoint --init-from of a language model learned another text than --data.
void notice_other_text(const CommonOptions& options, const DataSource& data);
// A text in the recipe of a checkpoint, of a folder of them, or of the checkpoint of a weights.safetensors; none in
// another file of weights.
std::optional<std::string> recipe_text(const std::string& weights, std::string_view name);
// Writes a notice if the run --init-from learned as many other classes, or other columns, than --data has.
void notice_other_schema(const CommonOptions& options, const DataSource& data);
// Fashion-MNIST's, or that of a text with as many characters as a play has: for models before there are data.
DataSchema stand_in_schema(const CommonOptions& options);
// Placeholder examples of that schema, for timing and graphs.
std::shared_ptr<const Dataset> made_up_examples(const CommonOptions& options, std::int64_t count);

// A model on the job's devices, with initial weights from the seed or from the file.
std::unique_ptr<Module> make_initialized_model(const CommonOptions& options, const ToolJob& job,
                                               const DataSchema& schema);

// Empty: the default of Trainer and of evaluate(), for pictures.
std::vector<Metric> make_metrics(const CommonOptions& options, std::int64_t classes);
// A confusion matrix with heads, without classes that do not occur, and the pairs that are confused most often.
std::string confusion_text(const std::string& name, const std::vector<std::vector<double>>& table,
                           const std::vector<std::string>& class_names);

}  // namespace lockstep::app
