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
  // Not set: classification if y has one whole number for each example, of few different values that occur five times
  // or more on average: at most 1,000 of an integer type, 20 of a floating one. Otherwise regression.
  std::optional<TaskKind> task = {};
  // The names of the classes, by value of y, from 0. Empty: the values.
  std::vector<std::string> class_names{};
  // Also normalizes pictures of bytes, instead of dividing them by 255.
  bool normalize_bytes = false;
};

// How rows become examples. Pictures are rows of two or three axes, [H, W] or [C, H, W]; [H, W, C], where C is 1, 3, or
// 4 and the row does not begin with such an axis, is reordered. Pictures of bytes are divided by 255. All other rows
// are normalized: (value - mean) / standard deviation of the training rows, for each channel of a picture, and for each
// element of a row of one axis.
struct ArraySchema {
  // Of one row in the file, and of x in an example.
  std::vector<std::int64_t> row, input;
  bool channels_last = false;
  // Of x in training. Pictures of bytes, 0 to 255, and others, maybe 0 to 1, do not stand for each other.
  std::optional<ElementType> type = {};
  double divisor = 1;
  // For each channel or element; empty: not normalized. A standard deviation of 0 counts as 1.
  std::vector<double> mean{}, stddev{};
  TaskKind task = TaskKind::classification;
  // The value of y for each class, in ascending order, and the class's name.
  std::vector<std::int64_t> values{};
  std::vector<std::string> classes{};
  // Regression: for each element of a label, of training rows.
  std::vector<double> target_mean{}, target_stddev{};
  std::string reason{};

  bool operator==(const ArraySchema&) const = default;
};

// Rows by a hash of the bytes of x and y: see in_validation(). Equal rows are in one part. Reads all rows, unless the
// share is 0.
SplitRows split_rows(const FileArray& x, const FileArray& y, double validation_share);

// Normalization comes from rows.train, classes from all rows of both parts. Throws an Error that names the file, what
// was found, and what was expected: if x and y have different numbers of rows, for rows with more than three axes or
// without elements, infinities and NaN in training rows, and one class only.
ArraySchema make_array_schema(const FileArray& x, const FileArray& y, const SplitRows& rows,
                              const ArraySchemaOptions& options = {});

// Examples are {x f32 [input]} and, with y, a label: i64 [] of a class, or f32 [elements] of numbers. Rows are read
// when they are used. A value of y that is not one of the schema's, and a value of x that is not finite, is an error
// that names the file and the row. Pictures of bytes where training had others, and the reverse, are an error.
class ArrayDataset : public Dataset {
 public:
  ArrayDataset(FileArray x, std::optional<FileArray> y, ArraySchema schema, std::vector<std::int64_t> rows);
  // All rows.
  ArrayDataset(FileArray x, std::optional<FileArray> y, ArraySchema schema);
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  // The class of each example; empty for numbers, and without y.
  const std::vector<std::int64_t>& labels() const { return labels_; }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;

 private:
  FileArray x_;
  std::optional<FileArray> y_;
  ArraySchema schema_;
  std::vector<std::int64_t> rows_;
  std::vector<std::int64_t> labels_;  // of classes, for rows_
  std::int64_t label_size_ = 0;
};

}  // namespace lockstep
