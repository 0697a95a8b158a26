// Transforms of pictures for lockstep.transforms, and the random key of the example that is being made.
#include <pybind11/stl/filesystem.h>

#include "data.h"

namespace lockstep::python {
namespace {

// The key of the example, or of the batch, that this thread makes, and the number of random transforms that used it.
struct ExampleKey {
  std::optional<RandomKey> key;
  std::uint64_t used = 0;
};
thread_local ExampleKey example_key;

Interpolation interpolation_of(const std::string& name) {
  if (name == "bilinear") return Interpolation::bilinear;
  check(name == "nearest", "transform: interpolation '{}', expected 'bilinear' or 'nearest'", name);
  return Interpolation::nearest;
}

// The first use gets the key itself, so that it draws the same as the library's data sets.
RandomKey next_key(std::uint64_t drawn) {
  if (!example_key.key) return {drawn, 0};
  const RandomKey key = *example_key.key;
  const std::uint64_t number = example_key.used++;
  return number == 0 ? key : random_key(key.seed, {key.stream, hash_name("transform"), number});
}

template <typename M>
void add_mix(py::module_& m, const char* name) {
  py::class_<M>(m, name)
      .def(py::init([](double alpha, std::int64_t classes) { return M({.classes = classes, .alpha = alpha}); }))
      .def(
          "__call__",
          [](const M& self, const std::vector<Tensor>& batch, std::uint64_t drawn) {
            return self(batch, next_key(drawn));
          },
          released());
}

void add_image_transforms(py::module_& m) {
  py::class_<ImageTransform> transform(m, "ImageTransform", "A function of a picture and a key.");
  transform.def("__str__", &ImageTransform::str);
  transform.def(
      "__call__",
      [](const ImageTransform& self, const Tensor& image, std::optional<std::uint64_t> drawn) {
        return Compose({self})(image.to_host(), drawn ? next_key(*drawn) : RandomKey());
      },
      "image"_a, "drawn"_a, released(), "drawn: what random transforms draw from if no example has a key.");
  m.def("compose", [](std::vector<ImageTransform> all) -> ImageTransform { return Compose(std::move(all)); });
  m.def("to_float", []() -> ImageTransform { return ToFloat(); });
  m.def("normalize", [](std::vector<double> mean, std::vector<double> std) -> ImageTransform {
    return Normalize(std::move(mean), std::move(std));
  });
  m.def("resize", [](const std::vector<std::int64_t>& size, const std::string& interpolation) -> ImageTransform {
    const ResizeOptions options{interpolation_of(interpolation)};
    return size.size() == 1 ? Resize(size[0], options) : Resize(ImageSize{size.at(0), size.at(1)}, options);
  });
  m.def("center_crop", [](std::int64_t height, std::int64_t width) -> ImageTransform {
    return CenterCrop(ImageSize{height, width});
  });
  m.def("random_crop",
        [](std::int64_t height, std::int64_t width, std::int64_t padding, bool pad, double fill) -> ImageTransform {
          return RandomCrop(ImageSize{height, width}, {.padding = padding, .pad_if_needed = pad, .fill = fill});
        });
  using Pair = std::pair<double, double>;
  m.def("random_resized_crop",
        [](std::int64_t height, std::int64_t width, Pair scale, Pair ratio,
           const std::string& interpolation) -> ImageTransform {
          return RandomResizedCrop(ImageSize{height, width}, {.min_scale = scale.first,
                                                              .max_scale = scale.second,
                                                              .min_ratio = ratio.first,
                                                              .max_ratio = ratio.second,
                                                              .interpolation = interpolation_of(interpolation)});
        });
  m.def("random_horizontal_flip", [](double p) -> ImageTransform { return RandomHorizontalFlip(p); });
  m.def("random_vertical_flip", [](double p) -> ImageTransform { return RandomVerticalFlip(p); });
  m.def("random_rotation", [](Pair degrees, const std::string& interpolation, double fill) -> ImageTransform {
    return RandomRotation(degrees.first, degrees.second,
                          {.interpolation = interpolation_of(interpolation), .fill = fill});
  });
  m.def("color_jitter", [](double brightness, double contrast, double saturation, double hue) -> ImageTransform {
    return ColorJitter({.brightness = brightness, .contrast = contrast, .saturation = saturation, .hue = hue});
  });
  m.def("random_erasing", [](double p, Pair scale, Pair ratio, double value) -> ImageTransform {
    return RandomErasing({.p = p,
                          .min_scale = scale.first,
                          .max_scale = scale.second,
                          .min_ratio = ratio.first,
                          .max_ratio = ratio.second,
                          .value = value});
  });
  m.def(
      "transformed",
      [](std::shared_ptr<Dataset> inner, const ImageTransform& transform) {
        return std::shared_ptr<Dataset>(std::make_shared<TransformedDataset>(std::move(inner), std::vector{transform}));
      },
      "dataset"_a, "transform"_a);
  add_mix<MixUp>(m, "MixUp");
  add_mix<CutMix>(m, "CutMix");
}

}  // namespace

ExampleScope::ExampleScope(RandomKey key) : outer_(example_key.key), outer_used_(example_key.used) {
  example_key = {key, 0};
}
ExampleScope::~ExampleScope() { example_key = {outer_, outer_used_}; }

void add_transforms(py::module_& m) {
  add_image_transforms(m);
  m.def("has_example_key", [] { return example_key.key.has_value(); });
  m.def(
      "uniform_draws",
      [](int count, std::uint64_t drawn) {
        const RandomKey key = next_key(drawn);
        std::vector<double> draws;
        for (int i = 0; i < count; ++i) draws.push_back(random_uniform(key, static_cast<std::uint64_t>(i)));
        return draws;
      },
      "count"_a, "drawn"_a,
      "Numbers in [0, 1) that follow from the example's key, as a random transform's do, or else from `drawn`.");
  // with PythonScope("transform", seed, epoch, number): the key of an example, or ("batch transform") of a batch.
  struct PythonScope {
    RandomKey key;
    std::unique_ptr<ExampleScope> scope;
  };
  py::class_<PythonScope>(m, "ExampleScope", "In its scope, random transforms have the key of this example.")
      .def(py::init([](const std::string& kind, std::uint64_t seed, std::uint64_t epoch, std::uint64_t number) {
        return PythonScope{random_key(seed, {hash_name(kind), epoch, number}), nullptr};
      }))
      .def("__enter__", [](PythonScope& s) { s.scope = std::make_unique<ExampleScope>(s.key); })
      .def("__exit__", [](PythonScope& s, const py::args&) { s.scope.reset(); });

  m.def("is_cifar", [](const std::filesystem::path& folder) { return is_cifar(folder); });
  m.def(
      "cifar",
      [](const std::filesystem::path& folder, bool train) {
        const CifarFiles files = read_cifar(folder);
        check(train || files.test.has_value(), "{}: no file of tests", folder.string());
        const ArraySchema schema = make_array_schema(
            files.train.images, files.train.labels, split_rows(files.train.images, files.train.labels, 0),
            {.task = TaskKind::classification, .class_names = files.class_names});
        const CifarPart& part = train ? files.train : *files.test;
        return std::make_pair(
            std::shared_ptr<Dataset>(std::make_shared<ArrayDataset>(part.images, part.labels, schema)), schema.classes);
      },
      "folder"_a, "train"_a, released());

  py::class_<TableSchema, std::shared_ptr<TableSchema>> schema(m, "TableSchema", "What the columns of a table mean.");
  schema.def_readonly("classes", &TableSchema::classes);
  schema.def_property_readonly("features", &TableSchema::features);
  schema.def_property_readonly("columns", [](const TableSchema& s) {
    std::vector<std::string> names;
    for (const TableColumn& column : s.columns) names.push_back(column.name);
    return names;
  });
  schema.def_property_readonly("vocabularies", &TableSchema::vocabularies);
  m.def(
      "table",
      [](const std::filesystem::path& path, std::shared_ptr<TableSchema> schema, const std::string& target,
         const std::vector<std::string>& ignore, const std::vector<std::string>& categories,
         std::optional<bool> header) {
        const Table table = read_csv(path, {.header = header});
        if (!schema) {
          schema = std::make_shared<TableSchema>(make_table_schema(
              table, split_rows(table, 0), {.target = target, .ignore = ignore, .categories = categories}));
        }
        return std::make_pair(std::shared_ptr<Dataset>(std::make_shared<TableDataset>(table, *schema)), schema);
      },
      "path"_a, "schema"_a, "target"_a, "ignore"_a, "categories"_a, "header"_a, released());
}

}  // namespace lockstep::python
