// What the columns of a table mean to a model: numbers, categories, and the target. It is made from training data, is
// kept beside the weights, and encodes the same rows in the same way ever after.
//
//   const Table table = read_csv("iris.csv");
//   const SplitRows rows = split_rows(table, 0.1);
//   const TableSchema schema = make_table_schema(table, rows, {.target = "species"});
//   TableDataset train(table, schema, rows.train);  // {x f32 [features], label i64 []}
//
// A number is (value - mean) / standard deviation of the training rows. A missing number is the mean; a column in which
// training rows miss cells has a further feature after it that is 1 where the cell is missing, else 0. A category is
// its number among the texts that occur in training rows, sorted by their bytes, from 1; 0 is a missing cell.
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
  // Not set: classification if the target has texts, or whole numbers of at most 20 different values that occur five
  // times or more on average; otherwise regression.
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
  // Of a number, in training rows. A standard deviation of 0 counts as 1.
  double mean = 0, stddev = 1;
  // A number whose missing cells have a feature; a category with missing cells in training rows.
  bool missing = false;
  // Of a category, in order.
  std::vector<std::string> categories{};

  bool operator==(const TableColumn&) const = default;
};

// What encode() does with a category that training rows lack, and with a missing cell in a column where they miss none.
enum class Unseen : std::uint8_t {
  error,
  as_missing,  // a missing category, or the mean
};

struct TableSchema {
  std::vector<TableColumn> columns;  // in the table's order, without the target
  std::string target;
  // Whether names come from a header, or are the numbers of columns.
  bool has_header = false;
  // The number of the table's columns, with those that are not used. 0: not known.
  std::int64_t table_columns = 0;
  // The one that was given to read the table; empty if it was found out.
  std::string delimiter{};
  TaskKind task = TaskKind::classification;
  // Classification: the names of the classes, by number. They are the texts of the cells: 7 and 007 are two classes,
  // and so are 1.1 and 1.10. Texts are sorted by their bytes; if all are numbers, by value.
  std::vector<std::string> classes{};
  // All are numbers in their shortest form. A class 1 then is also a label that another table writes as 1.0.
  bool numeric_classes = false;
  // Regression: labels are (value - target_mean) / target_stddev, of training rows.
  double target_mean = 0, target_stddev = 1;
  // Why the task is what it is, and which columns are not used: "the target has 3 texts".
  std::string reason{}, left_out{};

  // The numbers of an encoded row: one for each number, and one for each number that has a feature for missing cells.
  std::int64_t number_features() const;
  // All elements of an encoded row: number_features(), then the number of the category in each category's column.
  std::int64_t features() const;
  // The number of values of each category's column, the missing one included.
  std::vector<std::int64_t> vocabularies() const;

  bool operator==(const TableSchema&) const = default;
};

// Rows by a hash of all of their cells: see in_validation(). Equal rows are in one part. A share of 0 leaves none for
// validation.
SplitRows split_rows(const Table& table, double validation_share);

// Means, deviations, and categories come from rows.train; kinds of columns and classes from all rows of both parts.
// A column has numbers if all its present cells are numbers, and else categories. Columns without any cell, of row
// numbers without a name, and of at least 20 texts that all differ are left out: see TableSchema::left_out. Throws an
// Error that names the file, the line, the column, what was found, and what was expected: for a column where at most
// one present cell in ten is not a number (a damaged cell, or name the column in `categories`), decimal commas,
// infinities and numbers beyond f64, a target that is not there or has missing cells, or one class only, and a table
// without other columns.
TableSchema make_table_schema(const Table& table, const SplitRows& rows, const TableSchemaOptions& options = {});

// Encodes rows of any table that has the schema's columns by name. Without a header, columns go by number: the table
// has as many as the one of training, or all but the target, if that is the last one. Made once for a table, then
// called for its rows.
class TableEncoder {
 public:
  // Throws if a column is not there, or if columns without names are others than in training.
  TableEncoder(const Table& table, const TableSchema& schema, Unseen unseen = Unseen::error);
  // Whether the table has the target, which rows to predict lack.
  bool has_target() const { return target_ >= 0; }
  // Writes features() elements. Returns the number of cells that Unseen::as_missing applied to. Throws like
  // make_table_schema(), and as `unseen` says.
  std::int64_t encode(std::int64_t row, std::span<float> out) const;
  // The number of the class, or the normalized number. Throws for another class, and for a missing cell.
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
