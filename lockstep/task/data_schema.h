// What data looked like in training: all that is needed to make examples of new data in the same way. A run folder
// keeps it beside the weights.
//
//   const DataSchema schema = DataSchema::from_json(text);
//   const DataExamples examples = open_examples("new.csv", schema);
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/array_dataset.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/table_schema.h"

namespace LOCKSTEP_API lockstep {

enum class DataFormat : std::uint8_t { images, csv, npy, cifar, idx, safetensors, text };
// The name of each format, in the order of the enum: what name(), parse_data_format(), and the tool's --format know.
inline constexpr std::array<std::string_view, 7> kDataFormatNames{"images", "csv",         "npy", "cifar",
                                                                  "idx",    "safetensors", "text"};
static_assert(kDataFormatNames.size() == static_cast<std::size_t>(DataFormat::text) + 1);
std::string_view name(DataFormat format);
// Throws for another name.
DataFormat parse_data_format(std::string_view name);

// Pictures of a folder: each is resized and cropped to one size; x is (pixel / 255 - mean) / stddev for each channel.
struct ImageSchema {
  std::int64_t height = 0, width = 0;
  std::int64_t channels = 0;  // 1 (gray) or 3
  std::vector<double> mean{}, stddev{};

  bool operator==(const ImageSchema&) const = default;
};

// How a value of a picture or a row of an array becomes a number of the model's input:
// (value / divisor - mean) / stddev, for each channel of a picture or each element of a row. No mean: value / divisor.
struct InputScale {
  double divisor = 1;
  std::vector<double> mean{}, stddev{};

  // Returns the value that became x, in channel or element `c`.
  double value_of(double x, std::size_t c) const { return (mean.empty() ? x : x * stddev[c] + mean[c]) * divisor; }
};

struct DataSchema {
  DataFormat format = DataFormat::csv;
  TaskKind task = TaskKind::classification;
  // Names of the classes, by index; for a text, its characters. Empty for regression.
  std::vector<std::string> classes{};
  // The shape of one example's input: [C, H, W], [features], or [context].
  std::vector<std::int64_t> input{};
  // Number of outputs of the model: classes, or numbers to predict.
  std::int64_t outputs = 0;
  // One of these three is set, none for texts.
  std::optional<TableSchema> table = {};
  std::optional<ArraySchema> array = {};
  std::optional<ImageSchema> image = {};
  // Regression: output k is in units of target_stddev[k] around target_mean[k].
  std::vector<double> target_mean{}, target_stddev{};

  // For pictures and arrays; x stays as it is for others, and TableColumn has the numbers of tables.
  InputScale input_scale() const;

  // Convert to a JSON object and back. Numbers and texts survive exactly, also bytes that are not UTF-8. from_json()
  // throws an Error that names what is wrong.
  std::string json() const;
  static DataSchema from_json(std::string_view text);

  bool operator==(const DataSchema&) const = default;
};

// SHA-256 of all that decides how examples are made.
std::string schema_hash(DataSchema schema);
// Names of the classes for a table or a page. Characters are written as in JSON: "a", "\n".
std::vector<std::string> class_names(const DataSchema& schema);

struct DataExamples {
  // {input}, or {input, label} if the data have labels.
  std::shared_ptr<const Dataset> data;
  bool labeled = false;
  // Name of each example: a row's number from 1, "line 7" if broken rows were skipped, or a file's name.
  std::vector<std::string> names;
  // Number of rows or files that skip_broken left out.
  std::int64_t skipped = 0;
  // Number of cells to which Unseen::as_missing applied.
  std::int64_t unseen = 0;
};

struct ExampleOptions {
  // What to do with a category that training data lack, and with a missing cell where training data miss none.
  Unseen unseen = Unseen::error;
  // Leave out broken rows and pictures instead of failing.
  bool skip_broken = false;
  // False, to predict: ignores labels. The target of a table may then have any cells, and the examples of a folder are
  // all pictures in it and in its subfolders, which need not be classes.
  bool labels = true;
  // Limit for pictures in files: see ImageOptions.
  std::int64_t max_pixels = 0;
};

// Opens the data at a path, to predict or to evaluate, encoded as `schema` says. A table may lack the target; an .npy
// file has x, maybe with y in a file beside it; an .npz or safetensors file has x, or x_test, and maybe y, or y_test.
// Of a folder with train/ and val/ or test/, uses the latter.
DataExamples open_examples(const std::filesystem::path& path, const DataSchema& schema,
                           const ExampleOptions& options = {});

}  // namespace lockstep
