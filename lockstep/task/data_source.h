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
// and "validation" mean "test". Either part of a name may come first, in any case: "X_train", "test-labels".
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

// How pictures are normalized: (x - mean) / stddev of each channel, where bytes become x in 0 to 1. automatic: with
// statistics of the training part, except for pictures of bytes in arrays. training: always with them. none: never.
enum class Normalization : std::uint8_t { automatic, training, none };

struct DataOptions {
  // Not set: detected.
  std::optional<DataFormat> format = {};
  // Tables: see TableSchemaOptions and CsvOptions.
  std::string target{};
  std::vector<std::string> ignore{}, categories{};
  std::optional<char> delimiter = {};
  std::optional<bool> header = {};
  std::optional<TaskKind> task = {};
  // Share of the examples that becomes validation data if the data have no part for it. A hash of each example decides:
  // see in_validation(). For a text, it is the last part.
  double val_split = 0.1;
  // Makes the digest cover the contents of pictures in folders, too. It always covers the contents of other files.
  bool hash_data = false;
  // Leaves out and counts broken rows, rows with a damaged number or without a target, and broken pictures, instead of
  // failing; classes without a picture are then no error.
  bool skip_broken = false;
  // Pictures: transforms of training examples.
  Augment augment = Augment::none;
  // Each value that is set replaces that of `augment`.
  AugmentOptions transforms{};
  // Edge of the square that all pictures become. 0: pictures of one size of at most 256 keep it; others become a square
  // whose edge is the shortest edge of all pictures, rounded up to a multiple of 32, from 32 to 224.
  std::int64_t image_size = 0;
  // Limit for pictures in files: see ImageOptions.
  std::int64_t max_pixels = 0;
  Normalization normalization = Normalization::automatic;
  // Given values, such as those of ImageNet: a number for each channel, or one for all. Set both or neither.
  std::vector<double> mean{}, stddev{};
  // Texts: number of characters of an example, and whether training examples begin at random positions.
  std::int64_t context = 128;
  bool random_starts = true;
  // Uses only this many first examples of each part; 0: all. Classes, normalization, and sizes still come from all
  // examples.
  std::int64_t limit_train = 0, limit_validation = 0;
};

struct DataSource {
  DataSchema schema;
  std::shared_ptr<const Dataset> train, validation;
  // Number of examples before limit_train and limit_validation.
  std::int64_t all_train = 0, all_validation = 0;
  // Number of examples of each class in the parts; empty for regression and texts.
  std::vector<std::int64_t> train_counts{}, validation_counts{};
  // Identifies the data, for the recipe: SHA-256 of contents if digest_covers_contents, else of names and sizes. For
  // MNIST and its replacements, it covers the training part alone.
  std::string digest;
  // Digest of a validation part that `digest` does not cover.
  std::string validation_digest{};
  bool digest_covers_contents = false;
  // Whether the data have a part for validation, so that val_split is not used.
  bool has_validation_part = false;
  // Pictures: transforms of training examples, and the decoder of files, for the recipe.
  std::string transforms{};
  // Returns the name of an example of `validation`: a row's number from 1, "line 7" if rows were skipped, or a file's
  // name. Empty without validation data, and for texts.
  std::function<std::string(std::int64_t index)> validation_name{};
  // Number of examples that `skip_broken` left out.
  std::int64_t skipped = 0;
  // One line: what it is, examples, classes with counts, sizes, columns.
  std::string description;
};

// Throws an Error that names the path, what was found, and what was expected. The part for validation is the one named
// test, val, valid, or validation; without it, val_split makes one. An option without an effect is an error.
DataSource open_data(const std::filesystem::path& path, const DataOptions& options = {});
// Returns the format of the data at the path. Throws an error that lists the known formats if it is none of them.
DataFormat detect_format(const std::filesystem::path& path);

// Returns options for a table, or for arrays with rows of one axis.
TableMlpOptions table_mlp_options(const DataSchema& schema);
// For TrainerOptions::loss: mean squared error for regression; empty for classes, where the default is right. For
// texts, cross entropy of each character.
std::function<Tensor(const Tensor& outputs, const Tensor& labels)> task_loss(const DataSchema& schema,
                                                                             double label_smoothing = 0);
// Accuracy for classes, and accuracy and perplexity for texts. For regression, in the units of the data:
// "mean_absolute_error" and "mean_squared_error".
std::vector<Metric> task_metrics(const DataSchema& schema);

}  // namespace lockstep
