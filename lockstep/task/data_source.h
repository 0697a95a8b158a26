// Data from a path: finds out what it is and makes training and validation examples of it.
//
//   DataSource data = open_data("iris.csv");
//   fmt::print("{}\n", data.description);
//   auto net = TableMlp(table_mlp_options(data.schema));
//   Trainer trainer(net, adam, data.train, data.validation,
//                   {.loss = task_loss(data.schema), .metrics = task_metrics(data.schema)});
//
// | path | is |
// |---|---|
// | a file named .csv, .tsv, .txt with columns | a table |
// | .npz, .safetensors with x and y, or x_train, y_train, and maybe x_test, y_test | arrays |
// | a folder with x.npy and y.npy, or x_train.npy and so on; x.npy itself, with y.npy beside it | arrays |
// | a folder with CIFAR's .bin files, with IDX files | pictures |
// | a folder with a folder for each class | pictures |
// | another text file | a text |
//
// x may be called data, images, inputs, features, or arr_0; y label, labels, target, targets, or arr_1; "val", "valid",
// and "validation" mean "test". Either part may come first, in any case: "X_train", "test-labels".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/transforms/augmentation.h"
#include "lockstep/models/table_mlp.h"
#include "lockstep/task/data_schema.h"
#include "lockstep/train/metrics.h"

namespace LOCKSTEP_API lockstep {

// How pictures are normalized: (x - mean) / stddev of each channel, where pixels of bytes become x in 0 to 1.
// automatic: by statistics of the training part, but pictures of bytes in arrays stay as they are. none: all stay.
enum class Normalization : std::uint8_t { automatic, training, none };

struct DataOptions {
  // Not set: found out.
  std::optional<DataFormat> format = {};
  // Tables: see TableSchemaOptions and CsvOptions.
  std::string target{};
  std::vector<std::string> ignore{}, categories{};
  std::optional<char> delimiter = {};
  std::optional<bool> header = {};
  std::optional<TaskKind> task = {};
  // The share of the examples that becomes validation data, where the data have no part for it. By a hash of each
  // example: see in_validation(). Of a text, the last part.
  double val_split = 0.1;
  // The digest covers the contents of pictures in folders, too. It always covers those of other files.
  bool hash_data = false;
  // Leave out and count broken rows and pictures instead of failing; classes without a picture are then no error.
  bool skip_broken = false;
  // Pictures: transforms of training examples, and the edge of a square that all become. 0: pictures of one size of at
  // most 256 keep it; others become a square whose edge is the shortest one of all, rounded up to a multiple of 32,
  // from 32 to 224.
  Augment augment = Augment::none;
  // Each that is set replaces that of `augment`.
  AugmentOptions transforms{};
  std::int64_t image_size = 0;
  // Of pictures in files: see ImageOptions.
  std::int64_t max_pixels = 0;
  Normalization normalization = Normalization::automatic;
  // Given ones, such as those of ImageNet: a number for each channel, or one for all. Expected together.
  std::vector<double> mean{}, stddev{};
  // The characters of an example of a text, and whether training examples begin anywhere.
  std::int64_t context = 128;
  bool random_starts = true;
  // Only the first so many examples of each part; 0: all. What is learned of the data (classes, normalization, sizes)
  // is that of all examples.
  std::int64_t limit_train = 0, limit_validation = 0;
};

struct DataSource {
  DataSchema schema;
  std::shared_ptr<const Dataset> train, validation;
  // Before limit_train and limit_validation.
  std::int64_t all_train = 0, all_validation = 0;
  // By class, of the examples in the parts; empty for regression and texts.
  std::vector<std::int64_t> train_counts{}, validation_counts{};
  // Identifies the data, for the recipe: SHA-256 of contents where digest_covers_contents, else of names and sizes. Of
  // MNIST and data in its place, it is that of the training part.
  std::string digest;
  // Of a validation part that `digest` does not cover.
  std::string validation_digest{};
  bool digest_covers_contents = false;
  // The data have a part for validation, so that val_split was not used.
  bool has_validation_part = false;
  // Pictures: what is done to training examples, and by which decoder, for the recipe.
  std::string transforms{};
  // What examples of `validation` are called: a row's number from 1, or a file's name. Empty if there are none, and for
  // texts.
  std::function<std::string(std::int64_t index)> validation_name{};
  // Examples that `skip_broken` left out.
  std::int64_t skipped = 0;
  // One line: what it is, examples, classes with counts, sizes, columns.
  std::string description;
};

// Throws an Error that names the path, what was found, and what was expected. The part for validation is named test,
// val, or validation where the data have one; val_split makes it otherwise. An option without a use is an error.
DataSource open_data(const std::filesystem::path& path, const DataOptions& options = {});
// What the path is. Throws if it is nothing known, and lists what is.
DataFormat detect_format(const std::filesystem::path& path);

// The model's options for a table, or for rows of one axis.
TableMlpOptions table_mlp_options(const DataSchema& schema);
// For TrainerOptions::loss: mean squared error for regression; empty for classes, where the default is right. For
// texts, cross entropy of each character.
std::function<Tensor(const Tensor& outputs, const Tensor& labels)> task_loss(const DataSchema& schema,
                                                                             double label_smoothing = 0);
// Accuracy for classes, and accuracy and perplexity for texts. For regression, in the units of the data:
// "mean_absolute_error" and "mean_squared_error".
std::vector<Metric> task_metrics(const DataSchema& schema);

}  // namespace lockstep
