// Data from a path, models that fit them, and runs of the tool: lockstep.open_data, lockstep.load_run.
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <string>
#include <utility>

#include "training.h"

namespace lockstep::python {
namespace {

using Path = std::filesystem::path;

std::shared_ptr<Dataset> part_of(const std::shared_ptr<const Dataset>& data) {
  return std::const_pointer_cast<Dataset>(data);
}

Normalization parse_normalization(const std::string& name) {
  if (name == "automatic") return Normalization::automatic;
  if (name == "training") return Normalization::training;
  check(name == "none", "open_data: normalization is \"{}\", expected \"automatic\", \"training\", or \"none\"", name);
  return Normalization::none;
}

std::optional<char> parse_delimiter(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  if (*text == "tab") return '\t';
  check(text->size() == 1, "open_data: delimiter is \"{}\", expected one character, or \"tab\"", *text);
  return text->front();
}

template <typename T>
T option_value(const std::string& name, py::handle value, const char* expected) {
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    throw py::type_error(fmt::format("open_data: transforms: {} is {}, expected {}", name,
                                     py::repr(value).cast<std::string>(), expected));
  }
}

// `names` has the fields of AugmentOptions.
AugmentOptions augment_options(const py::dict& names) {
  AugmentOptions options;
  const std::pair<const char*, std::optional<double>*> numbers[] = {{"resized_crop", &options.resized_crop},
                                                                    {"flip", &options.flip},
                                                                    {"vertical_flip", &options.vertical_flip},
                                                                    {"rotation", &options.rotation},
                                                                    {"erasing", &options.erasing}};
  for (const auto& [key, value] : names) {
    const auto name = py::str(key).cast<std::string>();
    const auto number = std::ranges::find(numbers, name, [](const auto& n) { return std::string(n.first); });
    if (number != std::end(numbers)) {
      *number->second = option_value<double>(name, value, "a number");
    } else if (name == "crop_padding") {
      options.crop_padding = option_value<std::int64_t>(name, value, "a whole number of pixels");
    } else if (name == "color_jitter") {
      constexpr const char* kFactors = "at most 4 numbers: brightness, contrast, saturation, hue";
      auto factors = option_value<std::vector<double>>(name, value, kFactors);
      check(factors.size() <= 4, "open_data: transforms: color_jitter has {} numbers, expected {}", factors.size(),
            kFactors);
      factors.resize(4);
      options.color_jitter = {
          .brightness = factors[0], .contrast = factors[1], .saturation = factors[2], .hue = factors[3]};
    } else {
      throw py::key_error(
          fmt::format("open_data: transforms has \"{}\", expected resized_crop, crop_padding, flip, vertical_flip, "
                      "rotation, color_jitter, or erasing",
                      name));
    }
  }
  return options;
}

std::shared_ptr<DataSource> open(const Path& path, const std::optional<std::string>& format, std::string target,
                                 std::vector<std::string> ignore, std::vector<std::string> categories,
                                 const std::optional<std::string>& delimiter, std::optional<bool> header,
                                 const std::optional<std::string>& task, double val_split, bool hash_data,
                                 bool skip_broken, const std::string& augment, const py::dict& transforms,
                                 std::int64_t image_size, std::int64_t max_pixels, const std::string& normalization,
                                 std::vector<double> mean, std::vector<double> std, std::int64_t context,
                                 bool random_starts, std::int64_t limit_train, std::int64_t limit_validation) {
  DataOptions options{.target = std::move(target),
                      .ignore = std::move(ignore),
                      .categories = std::move(categories),
                      .delimiter = parse_delimiter(delimiter),
                      .header = header,
                      .val_split = val_split,
                      .hash_data = hash_data,
                      .skip_broken = skip_broken,
                      .augment = parse_augment(augment),
                      .transforms = augment_options(transforms),
                      .image_size = image_size,
                      .max_pixels = max_pixels,
                      .normalization = parse_normalization(normalization),
                      .mean = std::move(mean),
                      .stddev = std::move(std),
                      .context = context,
                      .random_starts = random_starts,
                      .limit_train = limit_train,
                      .limit_validation = limit_validation};
  if (format) options.format = parse_data_format(*format);
  if (task) options.task = parse_task_kind(*task);
  const WithoutLock reading;
  return std::make_shared<DataSource>(open_data(path, options));
}

TaskModel task_model(const DataSource& data, const std::optional<std::string>& name, std::vector<std::int64_t> hidden,
                     std::optional<std::int64_t> layers, std::optional<std::int64_t> width,
                     std::optional<std::int64_t> heads, std::optional<double> dropout) {
  TaskModel model{.name = name.value_or(default_task_model(data.schema)), .hidden = std::move(hidden)};
  const bool text = data.schema.format == DataFormat::text;
  check(text || (!layers && !width && !heads && !dropout),
        "model: the data are {}, expected a text for layers, width, heads, and dropout",
        lockstep::name(data.schema.format));
  if (!text) return model;
  check(model.name == "gpt" || !heads, "model {}: expected gpt for heads", model.name);
  model.layers = layers.value_or(model.name == "lstm" ? 2 : 4);
  model.width = width.value_or(128);
  model.heads = model.name == "gpt" ? heads.value_or(4) : 0;
  model.dropout = dropout.value_or(0.1);
  return model;
}

void add_sources(py::module_& m) {
  py::class_<DataSource, std::shared_ptr<DataSource>> source(
      m, "DataSource", "Training and validation examples of a path, and what fits them; open_data() makes it.");
  source.def_property_readonly("train", [](const DataSource& d) { return part_of(d.train); });
  source.def_property_readonly(
      "validation",
      [](const DataSource& d) -> std::optional<std::shared_ptr<Dataset>> {
        if (!d.validation) return std::nullopt;
        return part_of(d.validation);
      },
      "None if there is no such part.");
  source.def_property_readonly("format", [](const DataSource& d) { return std::string(name(d.schema.format)); });
  source.def_property_readonly(
      "task", [](const DataSource& d) { return std::string(name(d.schema.task)); },
      "\"classification\", \"regression\", or \"language\".");
  source.def_property_readonly(
      "classes", [](const DataSource& d) { return d.schema.classes; }, "Their names; of a text, its characters.");
  source.def_property_readonly(
      "input", [](const DataSource& d) { return d.schema.input; }, "The extents of an example.");
  source.def_property_readonly(
      "outputs", [](const DataSource& d) { return d.schema.outputs; }, "How many a model has.");
  source.def_readonly("train_counts", &DataSource::train_counts, "Examples of each class.");
  source.def_readonly("validation_counts", &DataSource::validation_counts, "Examples of each class.");
  source.def_readonly("digest", &DataSource::digest, "SHA-256 that identifies the data, for a recipe.");
  source.def_readonly("transforms", &DataSource::transforms, "What is done to training pictures, for a recipe.");
  source.def_readonly("skipped", &DataSource::skipped, "Examples that skip_broken left out.");
  source.def_property_readonly(
      "schema", [](const DataSource& d) { return d.schema.json(); }, "How examples are made, as JSON.");
  source.def_readonly("description", &DataSource::description, "One line that says what the data are.");
  source.def("__str__", [](const DataSource& d) { return d.description; });
  source.def(
      "name_of",
      [](const DataSource& d, std::int64_t index) {
        const std::int64_t size = d.validation ? d.validation->size() : 0;
        check(index >= 0 && index < size, "name_of: example {} is out of range [0, {})", index, size);
        return d.validation_name ? d.validation_name(index) : std::to_string(index + 1);
      },
      "index"_a, "What an example of the validation part is called: a row's number, or a file's name.");
  source.def_property_readonly(
      "loss",
      [](const DataSource& d) -> py::object {
        auto loss = task_loss(d.schema);
        if (!loss) return py::none();
        return py::cpp_function(std::move(loss), "outputs"_a, "labels"_a, released());
      },
      "For Trainer(loss=...): the mean squared error of regression; None where Trainer's own is right.");
  source.def_property_readonly(
      "metrics", [](const DataSource& d) { return task_metrics(d.schema); }, "For Trainer(metrics=...).");
  source.def(
      "model",
      [](const DataSource& d, const std::optional<std::string>& name, std::vector<std::int64_t> hidden,
         std::optional<std::int64_t> layers, std::optional<std::int64_t> width, std::optional<std::int64_t> heads,
         std::optional<double> dropout) {
        const TaskModel model = task_model(d, name, std::move(hidden), layers, width, heads, dropout);
        std::shared_ptr<Module> net = make_task_model(d.schema, model);
        net->initialize(task_initializer(d.schema, model));
        return net;
      },
      "name"_a = py::none(), py::kw_only(), "hidden"_a = std::vector<std::int64_t>{}, "layers"_a = py::none(),
      "width"_a = py::none(), "heads"_a = py::none(), "dropout"_a = py::none(), released(),
      "The model of this name that the tool trains on such data, with its initial values: \"mlp\", \"lenet\", "
      "\"resnet18\", \"torchvision:resnet50\", \"gpt\", \"lstm\" [mlp for rows, resnet18 for pictures, gpt for texts]. "
      "hidden: of an mlp. Of a text: layers [4; lstm: 2], width [128], heads of a gpt [4], dropout [0.1].");

  m.def("open_data", &open, "path"_a, py::kw_only(), "format"_a = py::none(), "target"_a = "",
        "ignore"_a = std::vector<std::string>{}, "categories"_a = std::vector<std::string>{},
        "delimiter"_a = py::none(), "header"_a = py::none(), "task"_a = py::none(), "val_split"_a = 0.1,
        "hash_data"_a = false, "skip_broken"_a = false, "augment"_a = "none", "transforms"_a = py::dict(),
        "image_size"_a = 0, "max_pixels"_a = 0, "normalization"_a = "automatic", "mean"_a = std::vector<double>{},
        "std"_a = std::vector<double>{}, "context"_a = 128, "random_starts"_a = true, "limit_train"_a = 0,
        "limit_validation"_a = 0,
        "Training and validation examples of a path, as the tool makes them: a folder of pictures, a table, arrays, "
        "CIFAR or IDX files, a text. docs/your-data.md explains the options, which are DataOptions of C++. "
        "augment: \"none\", \"light\", or \"standard\"; transforms replaces single ones by name.");
}

void add_runs(py::module_& m) {
  py::class_<Run, std::shared_ptr<Run>> run(
      m, "Run", "A model that `lockstep train --save DIR` has left in a folder. Threads may call it.");
  run.def(
      "__call__", [](const Run& r, const Tensor& inputs) { return r(inputs); }, "inputs"_a, released(),
      "Inputs [N, ...] -> probabilities [N, classes], values [N, outputs], or those of each next character.");
  run.def_property_readonly(
      "model", [](const std::shared_ptr<Run>& r) { return std::shared_ptr<Module>(r, &r->model()); },
      "The network alone, for logits or normalized values.");
  run.def_property_readonly("classes", [](const Run& r) { return r.schema().classes; });
  run.def_property_readonly(
      "input", [](const Run& r) { return r.schema().input; }, "The extents of an example.");
  run.def_property_readonly(
      "name", [](const Run& r) { return r.description().model.name; }, "As `--model` names it.");
  run.def(
      "open",
      [](const Run& r, const Path& path, bool labels) {
        DataExamples examples = open_examples(path, r.schema(), {.labels = labels});
        return std::make_pair(part_of(examples.data), std::move(examples.names));
      },
      "path"_a, "labels"_a = true, released(), "The examples of a path as the model takes them, and their names.");
  m.def(
      "load_run", [](const Path& folder) { return std::shared_ptr<Run>(new Run(load_run(folder))); }, "folder"_a,
      released(),
      "The model of a run's folder, with the weights of the best epoch if it has them, else the newest ones.");
}

}  // namespace

void add_task(py::module_& m) {
  add_sources(m);
  add_runs(m);
}

}  // namespace lockstep::python
