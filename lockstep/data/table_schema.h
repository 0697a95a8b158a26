// What the columns of a table mean to a model: numbers, categories, and the target. It is made from training data and
// kept with the weights, so that new rows are encoded in the same way.
//
//   const Table table = read_csv("iris.csv");
//   const SplitRows rows = split_rows(table, 0.1);
//   const TableSchema schema = make_table_schema(table, rows, {.target = "species"});
//   TableDataset train(table, schema, rows.train);  // {x f32 [features], label i64 []}
//
// A number becomes (value - mean) / standard deviation of the training rows. A missing number becomes 0, the mean; a
// column of numbers that misses cells in training rows has one more feature, 1 where the cell is missing, else 0. A
// category becomes its index, from 1, among the sorted texts of training rows; 0 is a missing cell.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/formats/csv.h"
#include "lockstep/data/hash_split.h"

namespace LOCKSTEP_API lockstep {

// What a model learns: one of several classes, a number, or the next character of a text.
enum class TaskKind : std::uint8_t { classification, regression, language };
std::string_view name(TaskKind kind);
// Throws for another name.
TaskKind parse_task_kind(std::string_view name);

struct TableSchemaOptions {
  // Name or number of the column to learn. Empty: the last one.
  std::string target{};
  // Not set: classification if the target has texts, is one of `categories`, or has whole numbers of at most 20
  // different values that occur five times or more on average; otherwise regression.
  std::optional<TaskKind> task = {};
  // Names or numbers of columns that are not used.
  std::vector<std::string> ignore{};
  // Names or numbers of columns whose cells are categories, even if they look like numbers.
  std::vector<std::string> categories{};
};

// A column that the model sees.
struct TableColumn {
  enum class Kind : std::uint8_t { number, category };
  std::string name;
  Kind kind = Kind::number;
  // Mean and standard deviation of a number in training rows. A standard deviation of 0 is stored as 1.
  double mean = 0, stddev = 1;
  // Whether cells are missing in training rows. A column of numbers then has one more feature, for missing cells.
  bool missing = false;
  // Texts of a column of categories, sorted by their bytes.
  std::vector<std::string> categories{};

  bool operator==(const TableColumn&) const = default;
};

// What encode() does with a category that training rows lack, and with a missing cell where training rows miss none.
enum class Unseen : std::uint8_t {
  error,
  as_missing,  // counts as a missing category, or as the mean
};

struct TableSchema {
  std::vector<TableColumn> columns;  // in the table's order, without the target
  std::string target;
  // Whether the names come from a header; otherwise they are the numbers of the columns, from 1.
  bool has_header = false;
  // Number of columns of the table, with those that are not used. 0: not known.
  std::int64_t table_columns = 0;
  // Delimiter that was given to read the table; empty if it was detected.
  std::string delimiter{};
  TaskKind task = TaskKind::classification;
  // Classification: names of the classes, by index. They are the texts of the cells: 7 and 007 are two classes, and so
  // are 1.1 and 1.10. Texts are sorted by their bytes; if all are numbers, by value.
  std::vector<std::string> classes{};
  // Whether all classes are numbers in their shortest form. A cell 1.0 of another table then also means the class 1.
  bool numeric_classes = false;
  // Regression: labels are (value - target_mean) / target_stddev, of training rows.
  double target_mean = 0, target_stddev = 1;
  // Why the task is what it is, and which columns are not used: "the target has 3 texts".
  std::string reason{}, left_out{};

  // Number of leading elements of an encoded row: one for each column of numbers, two if it has missing cells.
  std::int64_t number_features() const;
  // Number of elements of an encoded row: number_features(), then one index for each column of categories.
  std::int64_t features() const;
  // Number of values of each column of categories, including the missing value.
  std::vector<std::int64_t> vocabularies() const;

  bool operator==(const TableSchema&) const = default;
};

// Assigns each row to a part by a hash of all its cells: see in_validation(). Equal rows get the same part. A share of
// 0 puts all rows into training.
SplitRows split_rows(const Table& table, double validation_share);

// Means, deviations, and categories come from rows.train, kinds of columns and classes from both parts. A column has
// numbers if all its present cells are numbers, otherwise categories. Leaves out columns without cells, columns of row
// numbers without a name, and columns of at least 20 texts that all differ: see TableSchema::left_out. Throws an Error
// that names the file, the line, the column, what was found, and what was expected: for a column where at most one
// present cell in ten is not a number (the cell is damaged, or the column belongs in `categories`), decimal commas,
// infinities and numbers beyond f64, a target that is absent, misses cells, or has one class only, and a table without
// other columns.
TableSchema make_table_schema(const Table& table, const SplitRows& rows, const TableSchemaOptions& options = {});

// Encodes the rows of a table that has the schema's columns, found by name. Without a header, columns are found by
// number: the table must have as many columns as in training, or all but the target if the target is the last one. Make
// one encoder for a table, then call it for each row.
class TableEncoder {
 public:
  // Throws if a column is not there, or if a table without a header has another number of columns than in training.
  TableEncoder(const Table& table, const TableSchema& schema, Unseen unseen = Unseen::error);
  // Whether the table has the target. Rows to predict may lack it.
  bool has_target() const { return target_ >= 0; }
  // Writes features() elements. Returns the number of cells that Unseen::as_missing applied to. Throws like
  // make_table_schema(), and as `unseen` says.
  std::int64_t encode(std::int64_t row, std::span<float> out) const;
  // Returns the index of the class, or the normalized number. Throws for an unknown class and for a missing cell.
  std::int64_t label(std::int64_t row) const;
  float target(std::int64_t row) const;

 private:
  const Table* table_;
  const TableSchema* schema_;
  Unseen unseen_;
  std::vector<std::int64_t> sources_;
  std::int64_t target_ = -1;
};

}  // namespace lockstep
