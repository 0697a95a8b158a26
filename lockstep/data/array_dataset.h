// Arrays as examples: row i of x and of y is example i.
//
//   const FileArray x = read_npy("x.npy"), y = read_npy("y.npy");
//   const SplitRows rows = split_rows(x, y, 0.1);
//   const ArraySchema schema = make_array_schema(x, y, rows);
//   ArrayDataset train(x, y, schema, rows.train);  // {x f32, label}
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/formats/file_array.h"
#include "lockstep/data/table_schema.h"

namespace LOCKSTEP_API lockstep {

struct ArraySchemaOptions {
  // Not set: classification if each y is one whole number, and class_names is set or the values are few: at most 1,000
  // of an integer type or 20 of a floating type, which occur five times or more on average. Otherwise regression.
  std::optional<TaskKind> task = {};
  // Names of the classes: element i names the value i of y. Empty: the values are the names.
  std::vector<std::string> class_names{};
  // Normalizes pictures of bytes like other rows instead of dividing them by 255.
  bool normalize_bytes = false;
};

// How rows become examples. Rows of two or three axes are pictures, [H, W] or [C, H, W]; [H, W, C] is reordered if C is
// 1, 3, or 4 and H is not. Pictures of bytes are divided by 255, and pictures of bools stay 0 and 1. All other rows are
// normalized: (value - mean) / standard deviation of the training rows, for each channel of a picture, and for each
// element of a row of one axis.
struct ArraySchema {
  // Shape of one row in the file, and of x in an example.
  std::vector<std::int64_t> row, input;
  bool channels_last = false;
  // Element type of x in training, because pictures of bytes (0 to 255) and others (maybe 0 to 1) must not be mixed.
  std::optional<ElementType> type = {};
  double divisor = 1;
  // One value for each channel or element; empty if x is not normalized. A standard deviation of 0 is stored as 1.
  std::vector<double> mean{}, stddev{};
  TaskKind task = TaskKind::classification;
  // The value of y for each class, in ascending order, and the class's name.
  std::vector<std::int64_t> values{};
  std::vector<std::string> classes{};
  // Regression: mean and standard deviation of each element of a label over the training rows.
  std::vector<double> target_mean{}, target_stddev{};
  std::string reason{};

  bool operator==(const ArraySchema&) const = default;
};

// Assigns each row to a part by a hash of its bytes in x and y: see in_validation(). Equal rows get the same part.
// Reads all rows, unless the share is 0.
SplitRows split_rows(const FileArray& x, const FileArray& y, double validation_share);

// Takes normalization from rows.train and classes from both parts. Throws an Error that names the file, what was found,
// and what was expected: for different numbers of rows in x and y, rows with more than three axes or without elements,
// infinities and NaN in training rows, and a single class.
ArraySchema make_array_schema(const FileArray& x, const FileArray& y, const SplitRows& rows,
                              const ArraySchemaOptions& options = {});

// Examples are {x f32 [input]} and, with y, a label: i64 [] of a class, or normalized f32 [elements]. Rows are read
// when they are used. A value of y without a class in the schema, or a value of x that is not finite, is an error that
// names the file and the row. Pictures of bytes are an error if training had other elements, and the reverse.
class ArrayDataset : public Dataset {
 public:
  ArrayDataset(FileArray x, std::optional<FileArray> y, ArraySchema schema, std::vector<std::int64_t> rows);
  // All rows.
  ArrayDataset(FileArray x, std::optional<FileArray> y, ArraySchema schema);
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  // Class of each example; empty for regression and without y.
  const std::vector<std::int64_t>& labels() const { return labels_; }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;

 private:
  FileArray x_;
  std::optional<FileArray> y_;
  ArraySchema schema_;
  std::vector<std::int64_t> rows_;
  std::vector<std::int64_t> labels_;  // class of each of rows_
  std::int64_t label_size_ = 0;
};

}  // namespace lockstep
