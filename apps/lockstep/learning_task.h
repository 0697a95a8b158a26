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

// Returns the data of --data, or Fashion-MNIST. Reads them unless choose_defaults() has done so.
std::shared_ptr<const DataSource> load_data(const CommonOptions& options);
// Returns whether the data are like Fashion-MNIST and MNIST: 28 x 28 bytes scaled to [0, 1], ten classes, a part for
// tests. Recipes for such data name neither schema nor split.
bool is_plain_mnist(const DataSource& data);
// Returns --data, or the folder of Fashion-MNIST if it is not given, as an absolute path.
std::string data_path(const CommonOptions& options);
// Writes notices if --limit-train or --limit-test exceeds the number of examples, or leaves out a class.
void notice_limits(const CommonOptions& options, const DataSource& data);
// Writes a notice if the checkpoint --init-from of a language model learned another text than --data.
void notice_other_text(const CommonOptions& options, const DataSource& data);
// Returns a text entry from the recipe of a checkpoint, of a folder of checkpoints, or of the checkpoint that has a
// weights.safetensors. Other files of weights have no recipe.
std::optional<std::string> recipe_text(const std::string& weights, std::string_view name);
// Writes a notice if the run --init-from learned as many classes as --data has, but others, or other columns.
void notice_other_schema(const CommonOptions& options, const DataSource& data);
// Returns the schema of Fashion-MNIST, or of a text with as many characters as a play has, for models without data.
DataSchema stand_in_schema(const CommonOptions& options);
// Returns placeholder examples of that schema, for timing and graphs.
std::shared_ptr<const Dataset> made_up_examples(const CommonOptions& options, std::int64_t count);

// Makes a model on the job's devices, with initial weights from the seed or from the file.
std::unique_ptr<Module> make_initialized_model(const CommonOptions& options, const ToolJob& job,
                                               const DataSchema& schema);

// Empty means the default of Trainer and evaluate(), for pictures.
std::vector<Metric> make_metrics(const CommonOptions& options, std::int64_t classes);

}  // namespace lockstep::app
