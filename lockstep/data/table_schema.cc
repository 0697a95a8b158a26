#include "lockstep/data/table_schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "lockstep/base/count_of.h"
#include "lockstep/base/option_error.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostWholeClasses = 20;
constexpr std::int64_t kRowsPerWholeClass = 5;
constexpr std::int64_t kFewestDifferentTexts = 20;
// f32 holds the indices of this many categories exactly.
constexpr std::int64_t kMostCategories = std::int64_t{1} << 24;

// What the cells of a column hold.
struct ColumnCells {
  std::int64_t missing = 0, numbers = 0, not_finite = 0, texts = 0;
  // First row with a cell of each kind; -1: there is none.
  std::int64_t first_missing = -1, first_not_finite = -1, first_text = -1;
  // Different texts of number cells, at most kMostWholeClasses + 1 of them.
  std::set<std::string_view> values{};
  bool whole = true;
  std::int64_t present() const { return numbers + not_finite + texts; }
  bool has_numbers() const { return is_column_of_numbers(numbers, texts); }
};

template <typename F>
void for_each_row(const SplitRows& rows, const F& f) {
  for (const std::int64_t row : rows.train) f(row);
  for (const std::int64_t row : rows.validation) f(row);
}

ColumnCells look_at(const Table& table, const SplitRows& rows, std::int64_t column) {
  ColumnCells cells;
  // f64 cannot tell apart whole numbers of 2^53 or more; their digits can.
  const auto is_whole = [](std::string_view cell, double value) {
    const bool digits = cell.find_first_not_of("+-0123456789") == cell.npos;
    return value == std::floor(value) && (std::abs(value) < 0x1p53 || digits);
  };
  const auto count = [](std::int64_t row, std::int64_t& counter, std::int64_t& first) {
    ++counter;
    if (first < 0 || row < first) first = row;
  };
  for_each_row(rows, [&](std::int64_t row) {
    const std::string_view text = table.cell(row, column);
    const CellNumber cell = parse_cell(text);
    switch (cell.kind) {
      case CellKind::missing: count(row, cells.missing, cells.first_missing); break;
      case CellKind::not_finite: count(row, cells.not_finite, cells.first_not_finite); break;
      case CellKind::text: count(row, cells.texts, cells.first_text); break;
      case CellKind::number:
        ++cells.numbers;
        cells.whole = cells.whole && is_whole(text, cell.value);
        if (std::ssize(cells.values) <= kMostWholeClasses) cells.values.insert(text);
    }
  });
  return cells;
}

void check_numbers(const Table& table, std::int64_t column, const ColumnCells& cells, std::string_view way_out) {
  const std::string_view leave_out = cells.has_numbers() ? "; skip_broken leaves such rows out" : "";
  if (cells.first_text >= 0) {
    const std::string_view cell = table.cell(cells.first_text, column);
    const bool header = table.has_header() && cell == table.names()[static_cast<std::size_t>(column)];
    fail_option({"categories", "skip_broken"},
                "{}: {} is not a number, expected one, as in {} of the column's {} cells{}{}{}",
                table.place(cells.first_text, column), quoted_cell(cell), cells.numbers, cells.present(), way_out,
                header ? "; the line repeats the name of the column" : "", leave_out);
  }
  if (cells.first_not_finite >= 0) {
    fail_option({"skip_broken"}, "{}: {} is not finite in f64, expected a finite number{}",
                table.place(cells.first_not_finite, column), quoted_cell(table.cell(cells.first_not_finite, column)),
                leave_out);
  }
}

// Throws if all cells are numbers and some have a comma, such as "1,5", from a locale with decimal commas.
void check_decimal_commas(const Table& table, const SplitRows& rows, std::int64_t column) {
  std::int64_t first = -1;
  bool all = true;
  for_each_row(rows, [&](std::int64_t row) {
    std::string cell(table.cell(row, column));
    const CellKind before = parse_cell(cell).kind;
    if (before == CellKind::missing) return;
    const std::size_t comma = cell.find(',');
    if (comma != cell.npos) cell[comma] = '.';
    all = all && parse_cell(cell).kind == CellKind::number;
    if (before == CellKind::text && (first < 0 || row < first)) first = row;
  });
  if (all && first >= 0) {
    fail_option({"categories"},
                "{}: {} has a comma, a decimal one or between thousands: expected a decimal point, and nothing between "
                "thousands (or name the column in `categories`)",
                table.place(first, column), quoted_cell(table.cell(first, column)));
  }
}

struct Moments {
  double mean = 0, stddev = 1;
};

// Sums in the order of the values. `where` names the values in errors.
Moments moments_of(const std::vector<double>& values, const std::string& where) {
  if (values.empty()) return {};
  const auto [least, most] = std::ranges::minmax(values);
  if (least == most) return {least, 1};
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double v : values) sum += v;
  const double mean = sum / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double stddev = std::sqrt(squares / n);
  check(std::isfinite(mean) && std::isfinite(stddev) && stddev > 0,
        "{}: the numbers from {} to {} have no mean and standard deviation in f64", where, least, most);
  return {mean, stddev};
}

std::string column_label(const Table& table, std::int64_t column) {
  return fmt::format("{}: column {}", table.file(), quoted_cell(table.names()[static_cast<std::size_t>(column)]));
}

std::vector<double> present_numbers(const Table& table, std::span<const std::int64_t> rows, std::int64_t column,
                                    bool& missing) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const std::int64_t row : rows) {
    const CellNumber cell = parse_cell(table.cell(row, column));
    if (cell.kind == CellKind::number) {
      values.push_back(cell.value);
    } else {
      missing = true;
    }
  }
  return values;
}

TableColumn number_column(const Table& table, const SplitRows& rows, std::int64_t column) {
  TableColumn made{.name = table.names()[static_cast<std::size_t>(column)]};
  const std::vector<double> values = present_numbers(table, rows.train, column, made.missing);
  const Moments moments = moments_of(values, column_label(table, column));
  made.mean = moments.mean;
  made.stddev = moments.stddev;
  return made;
}

TableColumn category_column(const Table& table, const SplitRows& rows, std::int64_t column) {
  TableColumn made{.name = table.names()[static_cast<std::size_t>(column)], .kind = TableColumn::Kind::category};
  std::unordered_set<std::string_view> seen;
  for (const std::int64_t row : rows.train) {
    const std::string_view cell = table.cell(row, column);
    if (parse_cell(cell).kind == CellKind::missing) {
      made.missing = true;
    } else {
      seen.insert(cell);
    }
  }
  made.categories.assign(seen.begin(), seen.end());
  std::ranges::sort(made.categories);
  check(std::ssize(made.categories) < kMostCategories, "{} has {} categories, expected fewer than {}",
        column_label(table, column), made.categories.size(), kMostCategories);
  return made;
}

bool all_texts_differ(const Table& table, const SplitRows& rows, std::int64_t column, const ColumnCells& cells) {
  if (cells.present() < kFewestDifferentTexts) return false;
  std::unordered_set<std::string_view> seen;
  bool differ = true;
  for_each_row(rows, [&](std::int64_t row) {
    const std::string_view cell = table.cell(row, column);
    if (differ && parse_cell(cell).kind != CellKind::missing) differ = seen.insert(cell).second;
  });
  return differ;
}

// Whether the column is the index that pandas writes first: 0, 1, 2, ... or 1, 2, 3, ..., without a name.
bool is_row_numbers(const Table& table, std::int64_t column) {
  if (column != 0 || !table.has_header() || table.names()[0] != "1" || table.rows() < 3) return false;
  const CellNumber first = parse_cell(table.cell(0, 0));
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    const CellNumber cell = parse_cell(table.cell(row, 0));
    if (cell.kind != CellKind::number || cell.value != first.value + static_cast<double>(row)) return false;
  }
  return first.value == 0 || first.value == 1;
}

// The shortest text of a number.
std::string class_of_number(double value) { return fmt::format("{}", value == 0 ? 0.0 : value); }

bool is_named(const Table& table, const std::vector<std::string>& names, std::int64_t column) {
  return std::ranges::any_of(names, [&](const std::string& name) { return table.column(name) == column; });
}

void learn_classes(const Table& table, const SplitRows& rows, std::int64_t column, const ColumnCells& cells,
                   TableSchema& schema) {
  if (cells.texts == 0) check_numbers(table, column, cells, "");
  std::unordered_set<std::string_view> seen;
  for_each_row(rows, [&](std::int64_t row) { seen.insert(table.cell(row, column)); });
  schema.classes.assign(seen.begin(), seen.end());
  const auto value_of = [](const std::string& text) { return parse_cell(text).value; };
  if (cells.texts == 0) {
    std::ranges::sort(schema.classes, {}, [&](const std::string& text) { return std::pair(value_of(text), text); });
  } else {
    std::ranges::sort(schema.classes);
  }
  schema.numeric_classes = cells.texts == 0 && std::ranges::all_of(schema.classes, [&](const std::string& text) {
                             return text == class_of_number(value_of(text)) && std::abs(value_of(text)) < 0x1p53;
                           });
  const std::int64_t classes = std::ssize(schema.classes), count = cells.present();
  check(classes >= 2, "{}: the target is {} in every row, expected at least two classes", column_label(table, column),
        quoted_cell(schema.classes.empty() ? "" : schema.classes[0]));
  check(count < kFewestDifferentTexts || 2 * classes <= count,
        "{}: the target has {} different values in {} rows, expected classes that occur twice or more on average{}",
        column_label(table, column), classes, count,
        cells.texts == 0 ? " (or the task regression)" : ", or another column as the target");
}

void learn_target(const Table& table, const SplitRows& rows, std::int64_t column, const TableSchemaOptions& options,
                  TableSchema& schema) {
  const ColumnCells cells = look_at(table, rows, column);
  check(cells.present() > 0,
        "{}: the target, {}, has no cells, as where each line ends with a delimiter: expected another target",
        table.file(), quoted_cell(schema.target));
  if (cells.first_missing >= 0) {
    const std::string_view cell = table.cell(cells.first_missing, column);
    fail_option({"skip_broken"},
                "{}: the target is missing ({}) in {}, expected one in each row (skip_broken leaves such rows out{})",
                table.place(cells.first_missing, column), quoted_cell(cell), count_of(cells.missing, "row"),
                cell.empty() ? "" : "; a class needs another name");
  }
  const std::int64_t different = std::ssize(cells.values);
  const bool few = cells.whole && different <= kMostWholeClasses && different * kRowsPerWholeClass <= cells.present();
  const bool declared = is_named(table, options.categories, column);
  if (!options.task && !declared && cells.texts > 0 && cells.has_numbers()) {
    check_numbers(table, column, cells, " (or the task classification)");
  }
  if (!options.task && cells.not_finite > 0 && cells.texts == 0) check_numbers(table, column, cells, "");
  schema.task = options.task ? *options.task
                             : (cells.texts > 0 || declared || few ? TaskKind::classification : TaskKind::regression);
  check(schema.task != TaskKind::language, "table: the task language, expected classification or regression");
  if (schema.task == TaskKind::classification) {
    learn_classes(table, rows, column, cells, schema);
    schema.reason = fmt::format("the target has {} {}", schema.classes.size(),
                                cells.texts > 0 ? "texts" : (cells.whole ? "whole numbers" : "numbers"));
  } else {
    check_numbers(table, column, cells, " (or the task classification)");
    bool missing = false;
    const std::vector<double> values = present_numbers(table, rows.train, column, missing);
    const Moments moments = moments_of(values, column_label(table, column));
    check(different >= 2, "{}: the target is {} in every row, expected different numbers", column_label(table, column),
          quoted_cell(different == 0 ? "" : *cells.values.begin()));
    const auto [least, most] = std::ranges::minmax(values);
    check(least < most || std::ssize(values) < 2,
          "{}: the target has texts such as {} and {}, which are one number in f64, expected different numbers (or the "
          "task classification)",
          column_label(table, column), quoted_cell(*cells.values.begin()), quoted_cell(*cells.values.rbegin()));
    schema.target_mean = moments.mean;
    schema.target_stddev = moments.stddev;
    schema.reason = different > kMostWholeClasses
                        ? fmt::format("the target has more than {} different numbers", kMostWholeClasses)
                        : fmt::format("the target has {} different numbers", different);
  }
  if (options.task) schema.reason = "as asked for";
}

}  // namespace

std::string_view name(TaskKind kind) {
  switch (kind) {
    case TaskKind::classification: return "classification";
    case TaskKind::regression: return "regression";
    case TaskKind::language: return "language";
  }
  return "?";
}

TaskKind parse_task_kind(std::string_view text) {
  for (const TaskKind kind : {TaskKind::classification, TaskKind::regression, TaskKind::language}) {
    if (name(kind) == text) return kind;
  }
  fail("task {}: expected classification, regression, or language", quoted_cell(text));
}

std::int64_t TableSchema::number_features() const {
  std::int64_t features = 0;
  for (const TableColumn& column : columns) {
    if (column.kind == TableColumn::Kind::number) features += column.missing ? 2 : 1;
  }
  return features;
}

std::int64_t TableSchema::features() const { return number_features() + std::ssize(vocabularies()); }

std::vector<std::int64_t> TableSchema::vocabularies() const {
  std::vector<std::int64_t> sizes;
  for (const TableColumn& column : columns) {
    if (column.kind == TableColumn::Kind::category) sizes.push_back(std::ssize(column.categories) + 1);
  }
  return sizes;
}

SplitRows split_rows(const Table& table, double validation_share) {
  SplitRows rows;
  std::string content;
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    content.clear();
    for (std::int64_t c = 0; c < table.columns(); ++c) {
      content += table.cell(row, c);
      content += '\0';  // in no cell
    }
    (in_validation(content, validation_share) ? rows.validation : rows.train).push_back(row);
  }
  return rows;
}

TableSchema make_table_schema(const Table& table, const SplitRows& rows, const TableSchemaOptions& options) {
  check(!rows.train.empty(), "{}: no rows for training", table.file());
  check_option(
      table.columns() > 1, "delimiter",
      "{}: 1 column, {}: expected the target and another one, with a comma, semicolon, or tab between them, or the "
      "option `delimiter`",
      table.file(), quoted_cell(table.names()[0]));
  TableSchema schema;
  const std::int64_t target = options.target.empty() ? table.columns() - 1 : table.column(options.target);
  schema.target = table.names()[static_cast<std::size_t>(target)];
  schema.has_header = table.has_header();
  schema.table_columns = table.columns();
  check(!is_named(table, options.ignore, target), "{}: the target {} is one of the columns to ignore", table.file(),
        quoted_cell(schema.target));
  learn_target(table, rows, target, options, schema);
  std::vector<std::string> left_out;
  for (std::int64_t column = 0; column < table.columns(); ++column) {
    if (column == target) continue;
    const std::string shown = quoted_cell(table.names()[static_cast<std::size_t>(column)]);
    if (is_named(table, options.ignore, column)) continue;
    const ColumnCells cells = look_at(table, rows, column);
    const bool declared = is_named(table, options.categories, column);
    if (cells.present() == 0) {
      left_out.push_back(shown + " (no cells)");
    } else if (!declared && is_row_numbers(table, column)) {
      left_out.push_back(shown + " (row numbers)");
    } else if (!declared && cells.has_numbers()) {
      check_numbers(table, column, cells, " (or name the column in `categories`)");
      schema.columns.push_back(number_column(table, rows, column));
    } else {
      if (!declared) {
        if (cells.texts == 0) check_numbers(table, column, cells, "");
        check_decimal_commas(table, rows, column);
        if (all_texts_differ(table, rows, column, cells)) {
          left_out.push_back(shown + " (all texts differ)");
          continue;
        }
      }
      schema.columns.push_back(category_column(table, rows, column));
    }
  }
  for (const std::string& one : left_out) schema.left_out += (schema.left_out.empty() ? "" : ", ") + one;
  check(!schema.columns.empty(), "{}: {}, expected one beside the target {} that a model can use{}{}", table.file(),
        count_of(table.columns(), "column"), quoted_cell(schema.target),
        left_out.empty() ? "" : "; left out: ", schema.left_out);
  return schema;
}

TableEncoder::TableEncoder(const Table& table, const TableSchema& schema, Unseen unseen)
    : table_(&table), schema_(&schema), unseen_(unseen) {
  if (!schema.has_header && !table.has_header() && schema.table_columns > 0) {
    const bool target_is_last = schema.target == std::to_string(schema.table_columns);
    check(table.columns() == schema.table_columns || (target_is_last && table.columns() == schema.table_columns - 1),
          "{}: {} columns without names, expected {}{}, as in training", table.file(), table.columns(),
          schema.table_columns,
          target_is_last ? fmt::format(", or {} without the target", schema.table_columns - 1)
                         : fmt::format(", the target in column {}, which may be empty, too", schema.target));
  }
  const auto find = [&](const std::string& name) {
    const auto& names = table.names();
    const auto found = std::ranges::find(names, name);
    return found == names.end() ? -1 : found - names.begin();
  };
  for (const TableColumn& column : schema.columns) {
    const std::int64_t source = find(column.name);
    if (source < 0) {
      fail("{}: there is no column {}, which the model expects{}", table.file(), quoted_cell(column.name),
           table.has_header() ? "" : "; the table has no header");
    }
    sources_.push_back(source);
  }
  target_ = find(schema.target);
}

std::int64_t TableEncoder::encode(std::int64_t row, std::span<float> out) const {
  check(std::ssize(out) == schema_->features(), "table: {} elements for an encoded row, expected {}", out.size(),
        schema_->features());
  std::int64_t unseen = 0;
  std::size_t next = 0;
  auto next_category = static_cast<std::size_t>(schema_->number_features());
  for (std::size_t c = 0; c < sources_.size(); ++c) {
    const TableColumn& column = schema_->columns[c];
    const std::string_view cell = table_->cell(row, sources_[c]);
    const CellNumber number = parse_cell(cell);
    // The text of an error costs more than the rest: none is made before there is an error.
    if (number.kind == CellKind::missing && !column.missing) {
      if (unseen_ == Unseen::error) {
        fail_option({"unseen"}, "{}: the cell is missing ({}), and none was in training (`unseen` can permit it)",
                    table_->place(row, sources_[c]), quoted_cell(cell));
      }
      ++unseen;
    }
    if (column.kind == TableColumn::Kind::number) {
      if (number.kind != CellKind::number && number.kind != CellKind::missing) {
        fail("{}: {} is not a finite number, expected one", table_->place(row, sources_[c]), quoted_cell(cell));
      }
      const bool missing = number.kind == CellKind::missing;
      const auto value = missing ? 0.0f : static_cast<float>((number.value - column.mean) / column.stddev);
      if (!std::isfinite(value)) {
        fail("{}: {} is too far from the training rows' mean of {}", table_->place(row, sources_[c]), quoted_cell(cell),
             column.mean);
      }
      out[next++] = value;
      if (column.missing) out[next++] = missing ? 1.0f : 0.0f;
      continue;
    }
    std::int64_t category = 0;
    if (number.kind != CellKind::missing) {
      const auto found = std::ranges::lower_bound(column.categories, cell, {},
                                                  [](const std::string& s) { return std::string_view(s); });
      if (found != column.categories.end() && *found == cell) {
        category = found - column.categories.begin() + 1;
      } else {
        if (unseen_ == Unseen::error) {
          fail_option({"unseen"},
                      "{}: {} is none of the {} categories of training rows (`unseen` can count it as missing)",
                      table_->place(row, sources_[c]), quoted_cell(cell), column.categories.size());
        }
        ++unseen;
      }
    }
    out[next_category++] = static_cast<float>(category);
  }
  return unseen;
}

std::int64_t TableEncoder::label(std::int64_t row) const {
  if (target_ < 0) fail("{}: there is no column {}, the target", table_->file(), quoted_cell(schema_->target));
  const std::string_view cell = table_->cell(row, target_);
  auto found = std::ranges::find(schema_->classes, cell);
  // Programs write whole numbers as 1.0 in a column with missing cells.
  if (found == schema_->classes.end() && schema_->numeric_classes && cell.find('.') != cell.npos) {
    const CellNumber number = parse_cell(cell);
    const bool whole = number.kind == CellKind::number && number.value == std::floor(number.value);
    if (whole) found = std::ranges::find(schema_->classes, class_of_number(number.value));
  }
  if (found == schema_->classes.end()) {
    fail("{}: the target is {}, expected one of the {} classes", table_->place(row, target_), quoted_cell(cell),
         schema_->classes.size());
  }
  return found - schema_->classes.begin();
}

float TableEncoder::target(std::int64_t row) const {
  if (target_ < 0) fail("{}: there is no column {}, the target", table_->file(), quoted_cell(schema_->target));
  const std::string_view cell = table_->cell(row, target_);
  const CellNumber number = parse_cell(cell);
  if (number.kind != CellKind::number) {
    fail("{}: the target is {}, expected a finite number", table_->place(row, target_), quoted_cell(cell));
  }
  const auto value = static_cast<float>((number.value - schema_->target_mean) / schema_->target_stddev);
  if (!std::isfinite(value)) {
    fail("{}: the target {} is too far from the training rows' mean of {}", table_->place(row, target_),
         quoted_cell(cell), schema_->target_mean);
  }
  return value;
}

}  // namespace lockstep
