#include "apps/lockstep/initial_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/lockstep/fine_tuning.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/task/run.h"

namespace lockstep::app {
namespace {

bool is_weights_file(const std::string& path) {
  try {
    if (std::filesystem::is_directory(path)) return false;
    read_safetensors(path);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Returns the end of an error message: the model of the checkpoint, or the expected model; empty if they do not help.
std::string models_of(const CommonOptions& o) {
  const std::optional<std::string> model = recipe_text(o.init_from, "model");
  if (model && *model != o.model.name) {
    return fmt::format("; the checkpoint is of --model {}, expected --model {}", *model, o.model.name);
  }
  return is_weights_file(o.init_from) ? fmt::format("; expected weights of --model {}", o.model.name) : "";
}

// Returns the schema of the run whose folder, or a checkpoint in it, --init-from names; nothing for other files.
std::optional<DataSchema> schema_of_weights(const CommonOptions& o) {
  const std::filesystem::path path = std::filesystem::absolute(o.init_from).lexically_normal();
  try {
    if (!std::filesystem::is_directory(path)) return std::nullopt;
    const std::filesystem::path inner = path.has_filename() ? path : path.parent_path();
    for (const std::filesystem::path& folder : {inner, inner.parent_path()}) {
      if (std::filesystem::exists(folder / "run.json")) return read_run(folder).schema;
    }
  } catch (const std::exception&) {  // written by another program
  }
  return std::nullopt;
}

std::string few_words(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(words.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + words[i];
  return text + (words.size() > kMost ? ", ..." : "");
}

void notice_other_text(const CommonOptions& o, const DataSource& data) {
  const std::optional<std::string> text = recipe_text(o.init_from, "data");
  if (!text || *text == data.digest) return;
  notice(fmt::format(
      "--init-from {}: learned another text than --data {}: a text numbers its own characters, so the model "
      "may take one for another",
      o.init_from, o.data));
}

void notice_other_schema(const CommonOptions& o, const DataSource& data) {
  const std::optional<DataSchema> learned = schema_of_weights(o);
  if (!learned) return;
  const DataSchema& mine = data.schema;
  if (learned->classes.size() == mine.classes.size() && learned->classes != mine.classes) {
    notice(fmt::format("--init-from {}: the last layer learned the classes {}; these data have {}", o.init_from,
                       few_words(learned->classes), few_words(mine.classes)));
  }
  if (!learned->table || !mine.table) return;
  const auto same = [](const TableColumn& a, const TableColumn& b) {
    return a.name == b.name && a.kind == b.kind && a.categories == b.categories;
  };
  if (!std::ranges::equal(learned->table->columns, mine.table->columns, same)) {
    notice(fmt::format("--init-from {}: learned other columns or categories: the model may take one for another",
                       o.init_from));
  }
}

}  // namespace

std::optional<std::string> recipe_text(const std::string& weights, std::string_view name) {
  const std::filesystem::path path = weights;
  try {
    if (!std::filesystem::is_directory(path) && path.filename() != "weights.safetensors") return std::nullopt;
    const Recipe recipe = read_recipe(std::filesystem::is_directory(path) ? path : path.parent_path());
    const Recipe::Value* found = recipe.find(name);
    const std::string* text = found ? found->as<std::string>() : nullptr;
    return text ? std::optional(*text) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // loading the weights reports the error
  }
}

void notice_other_data(const CommonOptions& o, const DataSource& data) {
  if (o.init_from.empty()) return;
  if (o.is_language_model()) notice_other_text(o, data);
  if (o.own_data) notice_other_schema(o, data);
}

std::unique_ptr<Module> make_initialized_model(const CommonOptions& o, const ToolJob& job, const DataSchema& schema) {
  const TaskModel model = task_model(o, job.dtype);
  auto net = make_task_model(schema, model);
  net->initialize(task_initializer(schema, model), job.devices(), {.seed = o.seed});
  if (o.init_from.empty()) return net;
  if (!o.partial) {
    try {
      std::string said;
      if (o.is_language_model()) {
        load_weights(o.init_from, *net);
      } else {
        said = load_with_new_head(o.init_from, *net);
      }
      if (!said.empty() && job.rank() == 0) notice(said);
    } catch (const Error& error) {
      fail("{}{}", error.what(), models_of(o));
    }
    return net;
  }
  const UnmatchedEntries unmatched = load_matching_weights(o.init_from, *net);
  if (job.rank() != 0) return net;
  for (const std::string& entry : unmatched.missing) notice("--partial: not in the file: " + entry);
  for (const std::string& entry : unmatched.different) notice("--partial: does not fit: " + entry);
  for (const std::string& entry : unmatched.unexpected) notice("--partial: not in the model: " + entry);
  return net;
}

}  // namespace lockstep::app
