#include "lockstep/task/data_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/autograd/functions.h"
#include "lockstep/base/file.h"
#include "lockstep/base/option_error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/data/files_digest.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/data/table_dataset.h"
#include "lockstep/data/text.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/device/file_memory.h"
#include "lockstep/task/array_files.h"
#include "lockstep/task/image_source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestTextFile = std::size_t{1} << 31;

// Reads a text. Throws if it and its ids, which CharacterSet::encode() makes, would take too much memory.
std::string read_text(const fs::path& path) {
  std::error_code unknown;
  const std::uintmax_t size = fs::file_size(path, unknown);
  if (!unknown) check_file_memory(size * (1 + sizeof(std::int64_t)), size, path.string(), "a text");
  return read_file(path, kLargestTextFile);
}

std::string plural(std::int64_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

void check_parts(const SplitRows& rows, const std::string& where, double share) {
  check_option(!rows.train.empty(), "val_split", "{}: no example is left for training: val_split is {}", where, share);
  check_option(share == 0 || !rows.validation.empty(), "val_split",
               "{}: {}, none of which val_split = {} takes for validation, expected more, or a larger share", where,
               plural(std::ssize(rows.train), "example"), share);
}

std::vector<std::int64_t> counts_of(const std::vector<std::int64_t>& labels, std::size_t classes) {
  std::vector<std::int64_t> counts(classes, 0);
  for (const std::int64_t label : labels) ++counts[static_cast<std::size_t>(label)];
  return counts;
}

// "classification (…): setosa 50, versicolor 50, virginica 50", or "regression (…)".
std::string task_text(const DataSource& data, const std::string& of, const std::string& reason) {
  return fmt::format("{}{} ({}){}", name(data.schema.task), of, reason,
                     data.schema.task == TaskKind::classification ? ": " + classes_text(data) : "");
}

std::string parts_text(const DataSource& data) {
  return fmt::format("{} to train, {} to validate", data.train->size(), data.validation ? data.validation->size() : 0);
}

std::function<std::string(std::int64_t)> row_numbers(std::vector<std::int64_t> rows) {
  return [rows = std::move(rows)](std::int64_t index) {
    return std::to_string(rows.at(static_cast<std::size_t>(index)) + 1);
  };
}

// Names lines if the parser left out rows, because row numbers would differ from those of the file.
std::vector<std::string> row_names(const Table& table, const std::vector<std::int64_t>& rows) {
  std::vector<std::string> names;
  for (const std::int64_t row : rows) {
    names.push_back(table.skipped() > 0 ? fmt::format("line {}", table.line(row)) : std::to_string(row + 1));
  }
  return names;
}

struct MissingTargets {
  std::int64_t count = 0;
  // Quoted cells, because a class may be named "none" or "NA".
  std::set<std::string> cells{};
};

// Leaves out rows whose target is missing.
void leave_out_missing(const Table& table, std::int64_t column, std::vector<std::int64_t>& rows,
                       MissingTargets& missing) {
  missing.count += static_cast<std::int64_t>(std::erase_if(rows, [&](std::int64_t row) {
    const std::string_view cell = table.cell(row, column);
    if (parse_cell(cell).kind != CellKind::missing) return false;
    missing.cells.insert(quoted_cell(cell));
    return true;
  }));
}

struct DamagedRows {
  std::int64_t count = 0;
  // Places and texts of the first few.
  std::vector<std::string> first{};
};

// Leaves out rows with a text, or a number that is not finite, in one of the columns of numbers.
void leave_out_damaged(const Table& table, const std::vector<std::int64_t>& columns, std::vector<std::int64_t>& rows,
                       DamagedRows& damaged) {
  constexpr std::size_t kMostNamed = 3;
  damaged.count += static_cast<std::int64_t>(std::erase_if(rows, [&](std::int64_t row) {
    for (const std::int64_t column : columns) {
      const CellKind kind = parse_cell(table.cell(row, column)).kind;
      if (kind != CellKind::text && kind != CellKind::not_finite) continue;
      if (damaged.first.size() < kMostNamed) {
        damaged.first.push_back(fmt::format("{} in line {}", quoted_cell(table.cell(row, column)), table.line(row)));
      }
      return true;
    }
    return false;
  }));
}

// The columns that make_table_schema() takes for numbers, although some cells may be damaged.
std::vector<std::int64_t> columns_of_numbers(const Table& table, std::int64_t target, const DataOptions& options) {
  std::vector<std::int64_t> columns;
  const auto is_one_of = [&](const std::vector<std::string>& names, std::int64_t column) {
    return std::ranges::any_of(names, [&](const std::string& name) { return table.column(name) == column; });
  };
  for (std::int64_t column = 0; column < table.columns(); ++column) {
    if (is_one_of(options.ignore, column) || is_one_of(options.categories, column)) continue;
    if (column == target && options.task == TaskKind::classification) continue;
    std::int64_t numbers = 0, texts = 0;
    for (std::int64_t row = 0; row < table.rows(); ++row) {
      const CellKind kind = parse_cell(table.cell(row, column)).kind;
      numbers += kind == CellKind::number ? 1 : 0;
      texts += kind == CellKind::text ? 1 : 0;
    }
    if (is_column_of_numbers(numbers, texts)) columns.push_back(column);
  }
  return columns;
}

DataSource open_table(const fs::path& path, const DataOptions& options) {
  const Table table =
      read_csv(path, {.delimiter = options.delimiter, .header = options.header, .skip_broken = options.skip_broken});
  DataSource data{.skipped = table.skipped()};
  SplitRows rows = split_rows(table, options.val_split);
  MissingTargets missing;
  DamagedRows damaged;
  if (options.skip_broken) {
    const std::int64_t column = options.target.empty() ? table.columns() - 1 : table.column(options.target);
    const std::vector<std::int64_t> numbers = columns_of_numbers(table, column, options);
    for (auto* const part : {&rows.train, &rows.validation}) {
      leave_out_missing(table, column, *part, missing);
      leave_out_damaged(table, numbers, *part, damaged);
    }
    data.skipped += missing.count + damaged.count;
  }
  check_parts(rows, path.string(), options.val_split);
  TableSchema schema = make_table_schema(
      table, rows,
      {.target = options.target, .task = options.task, .ignore = options.ignore, .categories = options.categories});
  if (options.delimiter) schema.delimiter = *options.delimiter;
  const bool regression = schema.task == TaskKind::regression;
  data.schema = {.format = DataFormat::csv,
                 .task = schema.task,
                 .classes = schema.classes,
                 .input = {schema.features()},
                 .outputs = regression ? 1 : std::ssize(schema.classes),
                 .table = schema};
  if (regression) {
    data.schema.target_mean = {schema.target_mean};
    data.schema.target_stddev = {schema.target_stddev};
  }
  const auto train = std::make_shared<TableDataset>(table, schema, rows.train);
  data.train = train;
  data.train_counts = counts_of(train->labels(), schema.classes.size());
  PartLabels labels{.train = train->labels(), .validation = {}};
  std::int64_t unseen = 0;
  if (!rows.validation.empty()) {
    data.validation_name = [names = row_names(table, rows.validation)](std::int64_t index) {
      return names.at(static_cast<std::size_t>(index));
    };
    const auto validation = std::make_shared<TableDataset>(table, schema, rows.validation, Unseen::as_missing);
    data.validation = validation;
    labels.validation = validation->labels();
    data.validation_counts = counts_of(labels.validation, schema.classes.size());
    unseen = validation->unseen();
  }
  data.digest = files_digest(path, {path}, {.contents = true});
  data.digest_covers_contents = true;
  const std::string target = quoted_cell(schema.target);
  const std::int64_t categories = std::ssize(schema.vocabularies());
  const std::int64_t numbers = std::ssize(schema.columns) - categories;
  data.description =
      fmt::format("{}; {}; columns used: {}, {} {}; {}", table.describe(),
                  task_text(data, fmt::format(" of column {}", target.substr(1, target.size() - 2)), schema.reason),
                  plural(numbers, "number"), categories, categories == 1 ? "category" : "categories", parts_text(data));
  if (!schema.left_out.empty()) data.description += "; left out: " + schema.left_out;
  if (data.skipped > 0) data.description += fmt::format("; skipped: {}", plural(data.skipped, "broken row"));
  if (missing.count > 0) {
    data.description += fmt::format(", of which {} {} a missing target, not a class: {}", missing.count,
                                    missing.count == 1 ? "has" : "have", fmt::join(missing.cells, ", "));
  }
  if (damaged.count > 0) {
    data.description +=
        fmt::format(", of which {} {} a damaged number: {}{}", damaged.count, damaged.count == 1 ? "has" : "have",
                    fmt::join(damaged.first, ", "), damaged.count > std::ssize(damaged.first) ? ", ..." : "");
  }
  if (unseen > 0) {
    data.description +=
        fmt::format("; {} to validate without a counterpart in training, taken as missing", plural(unseen, "cell"));
  }
  limit_parts(data, options, labels);
  return data;
}

// Sets the normalization of pictures if the options give one. Bytes are normalized in their own units, 0 to 255.
void choose_normalization(const FileArray& x, const DataOptions& options, ArraySchema& schema) {
  if (options.normalization != Normalization::none && !has_given_normalization(options, schema.input[0], x.file())) {
    return;
  }
  const double unit = x.type() == ElementType::u8 ? 255 : 1;
  schema.mean = for_channels(options.mean, schema.input[0]);
  schema.stddev = for_channels(options.stddev, schema.input[0]);
  for (double& m : schema.mean) m *= unit;
  for (double& s : schema.stddev) s *= unit;
  schema.divisor = schema.mean.empty() ? unit : 1;
}

// Pictures of bytes that are augmented before they are normalized.
std::shared_ptr<TransformedDataset> augmented_bytes(const FileArray& x, const FileArray& y, ArraySchema schema,
                                                    const std::vector<std::int64_t>& rows, const DataOptions& options) {
  std::vector<double> mean = std::exchange(schema.mean, {}), stddev = std::exchange(schema.stddev, {});
  schema.divisor = 255;
  const std::shared_ptr<const Dataset> plain = std::make_shared<ArrayDataset>(x, y, schema, rows);
  const TransformedDataset augmented =
      plain | augmentation(options.augment, {schema.input[1], schema.input[2]}, options.transforms);
  if (mean.empty()) return std::make_shared<TransformedDataset>(augmented);
  for (double& m : mean) m /= 255;
  for (double& s : stddev) s /= 255;
  return std::make_shared<TransformedDataset>(augmented | Normalize(mean, stddev));
}

DataSource open_arrays(const fs::path& path, DataFormat format, const DataOptions& options) {
  ArrayFiles files = find_arrays(path, format);
  check(files.train && files.train->y, "{}: has {}expected labels to learn{}", path.string(),
        files.train ? "x without y, " : "a test part alone, ",
        files.found.empty() ? "" : "; found the arrays " + files.found);
  check(!files.test || files.test->y, "{}: has x_test without y_test, expected both", path.string());
  const FileArray &x = files.train->x, &y = *files.train->y;
  const SplitRows rows = split_rows(x, y, files.test ? 0 : options.val_split);
  check_parts(rows, path.string(), files.test ? 0 : options.val_split);
  ArraySchema schema = make_array_schema(x, y, rows,
                                         {.task = options.task,
                                          .class_names = files.class_names,
                                          .normalize_bytes = options.normalization == Normalization::training});
  const bool pictures = schema.input.size() == 3;
  if (pictures) choose_normalization(x, options, schema);
  check(
      pictures || (options.normalization == Normalization::automatic && options.mean.empty() && options.stddev.empty()),
      "{}: rows of {} axis, expected pictures for normalization, mean, and stddev", x.describe(), schema.row.size());
  const bool regression = schema.task == TaskKind::regression;
  DataSource data{.schema = {.format = format,
                             .task = schema.task,
                             .classes = schema.classes,
                             .input = schema.input,
                             .outputs = regression ? std::ssize(schema.target_mean) : std::ssize(schema.classes),
                             .array = schema,
                             .target_mean = schema.target_mean,
                             .target_stddev = schema.target_stddev}};
  const auto train = std::make_shared<ArrayDataset>(x, y, schema, rows.train);
  data.train = train;
  if (augments(options.augment, options.transforms)) {
    check(pictures && x.type() == ElementType::u8 && (schema.input[0] == 1 || schema.input[0] == 3),
          "{}: x is {}, expected pictures of bytes with 1 or 3 channels for augmentation", path.string(), x.describe());
    const auto transformed = augmented_bytes(x, y, schema, rows.train, options);
    data.transforms = transformed->str();
    data.train = transformed;
  }
  data.train_counts = counts_of(train->labels(), schema.classes.size());
  std::shared_ptr<ArrayDataset> validation;
  if (files.test)
    validation = std::make_shared<ArrayDataset>(files.test->x, files.test->y, schema);
  else if (!rows.validation.empty())
    validation = std::make_shared<ArrayDataset>(x, y, schema, rows.validation);
  if (files.test) {
    data.validation_name = [](std::int64_t index) { return std::to_string(index + 1); };
  } else if (validation) {
    data.validation_name = row_numbers(rows.validation);
  }
  if (validation) data.validation_counts = counts_of(validation->labels(), schema.classes.size());
  data.validation = validation;
  data.has_validation_part = files.test.has_value();
  // Hashes contents, because arrays with other elements have the same size.
  data.digest_covers_contents = true;
  data.digest = files.sha256.empty() ? files_digest(path, files.files, {.contents = true}) : files.sha256;
  data.validation_digest = files.test_sha256;
  const std::string scaled = schema.divisor != 1        ? ", divided by 255"
                             : schema.mean.empty()      ? ""
                             : schema.input.size() == 3 ? ", normalized by channel"
                                                        : ", normalized by element";
  data.description =
      fmt::format("{}: {}, x {}, y {}, examples [{}]{}{}{}; {}; {}", path.string(), name(format), x.describe(),
                  y.describe(), fmt::join(schema.input, ", "), schema.channels_last ? " (channels first)" : "", scaled,
                  augmented_text(options), task_text(data, "", schema.reason), parts_text(data));
  limit_parts(
      data, options,
      {.train = train->labels(), .validation = validation ? validation->labels() : std::vector<std::int64_t>()});
  return data;
}

void describe_limits(DataSource& data, const DataOptions& options) {
  if (options.limit_train == 0 && options.limit_validation == 0) return;
  const auto part = [](std::int64_t most, std::int64_t all) { return most > 0 ? std::min(most, all) : all; };
  data.description +=
      fmt::format("; of these, the first {} to train and {} to validate", part(options.limit_train, data.all_train),
                  part(options.limit_validation, data.all_validation));
}

// The first `limit` examples of a text; 0: all.
std::string_view head_of_text(std::string_view text, std::int64_t limit, std::int64_t context) {
  if (limit == 0 || limit > static_cast<std::int64_t>(text.size()) / context) return text;
  return text.substr(0, static_cast<std::size_t>(limit * context + 1));
}

// The last part of a text is for validation.
DataSource open_text(const fs::path& path, const DataOptions& options) {
  check(!options.task || *options.task == TaskKind::language, "{}: a text, and the task {}, expected language",
        path.string(), name(*options.task));
  const std::string text = read_text(path);
  const CharacterSet characters(text);
  const std::size_t window = static_cast<std::size_t>(options.context) + 1;
  const auto share = static_cast<std::size_t>(static_cast<double>(text.size()) * options.val_split);
  const std::size_t last = options.val_split == 0 ? 0 : std::min(text.size(), std::max(share, window));
  const std::string_view whole = text;
  const std::string_view first = whole.substr(0, whole.size() - last);
  check(first.size() >= window,
        "{}: {} characters, of which {} are for validation, are too few for a context of {}: "
        "expected more than two of them",
        path.string(), text.size(), last, options.context);
  DataSource data{.schema = {.format = DataFormat::text,
                             .task = TaskKind::language,
                             .input = {options.context},
                             .outputs = characters.size()},
                  .all_train = (std::ssize(first) - 1) / options.context,
                  .all_validation = last > 0 ? (static_cast<std::int64_t>(last) - 1) / options.context : 0};
  for (std::int64_t c = 0; c < characters.size(); ++c) data.schema.classes.push_back(characters.decode({&c, 1}));
  data.train =
      std::make_shared<TextDataset>(characters.encode(head_of_text(first, options.limit_train, options.context)),
                                    TextOptions{.context = options.context, .random_starts = options.random_starts});
  if (last > 0) {
    const std::string_view rest = whole.substr(whole.size() - last);
    data.validation =
        std::make_shared<TextDataset>(characters.encode(head_of_text(rest, options.limit_validation, options.context)),
                                      TextOptions{.context = options.context});
  }
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  data.digest = hash.hex();
  data.digest_covers_contents = true;
  data.description =
      fmt::format("{}: text of {} characters, {} different ones; windows of {}: {} to train, {} to validate",
                  path.string(), text.size(), characters.size(), options.context, data.all_train, data.all_validation);
  describe_limits(data, options);
  return data;
}

}  // namespace

void limit_parts(DataSource& data, const DataOptions& options, const PartLabels& labels) {
  const auto limit = [](std::shared_ptr<const Dataset>& part, std::vector<std::int64_t>& counts,
                        std::span<const std::int64_t> of_part, std::int64_t most) {
    if (!part || most == 0 || most >= part->size()) return;
    part = std::make_shared<HeadDataset>(std::move(part), most);
    if (counts.empty()) return;
    std::ranges::fill(counts, 0);
    for (const std::int64_t label : of_part.first(static_cast<std::size_t>(most)))
      ++counts[static_cast<std::size_t>(label)];
  };
  data.all_train = data.train->size();
  data.all_validation = data.validation ? data.validation->size() : 0;
  describe_limits(data, options);
  limit(data.train, data.train_counts, labels.train, options.limit_train);
  limit(data.validation, data.validation_counts, labels.validation, options.limit_validation);
}

std::string classes_text(const DataSource& data) {
  std::string text;
  constexpr std::size_t kMostClasses = 10;
  const auto& classes = data.schema.classes;
  std::string empty;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const std::string quoted = quoted_cell(classes[c]);
    const std::string shown = quoted.substr(1, quoted.size() - 2);
    const std::int64_t validation = data.validation_counts.empty() ? 0 : data.validation_counts[c];
    if (c < kMostClasses) text += fmt::format("{}{} {}", c == 0 ? "" : ", ", shown, data.train_counts[c] + validation);
    if (data.train_counts[c] == 0) empty += (empty.empty() ? "" : ", ") + shown;
  }
  if (classes.size() > kMostClasses) text += fmt::format(", ... ({} classes)", classes.size());
  if (!empty.empty()) text += "; without a training example: " + empty;
  return text;
}

namespace {

// Throws for an option that has no effect on this format, so that nobody relies on it.
void check_use(const fs::path& path, DataFormat format, const DataOptions& options) {
  const DataOptions unset;
  const bool table = format == DataFormat::csv, folder = format == DataFormat::images,
             text = format == DataFormat::text, pictures = !table && !text;
  const struct {
    const char* option;
    bool given, used;
    const char* expected;
  } uses[] = {
      {"target", !options.target.empty(), table, "a table"},
      {"ignore", !options.ignore.empty(), table, "a table"},
      {"categories", !options.categories.empty(), table, "a table"},
      {"delimiter", options.delimiter.has_value(), table, "a table"},
      {"header", options.header.has_value(), table, "a table"},
      {"skip_broken", options.skip_broken, table || folder, "a table or a folder of pictures"},
      {"image_size", options.image_size != unset.image_size, folder, "a folder of pictures"},
      {"max_pixels", options.max_pixels != unset.max_pixels, folder, "a folder of pictures"},
      {"augmentation", augments(options.augment, options.transforms), pictures, "pictures"},
      {"normalization", options.normalization != unset.normalization, pictures, "pictures"},
      {"mean", !options.mean.empty(), pictures, "pictures"},
      {"stddev", !options.stddev.empty(), pictures, "pictures"},
      {"context", options.context != unset.context, text, "a text"},
  };
  for (const auto& [option, given, used, expected] : uses) {
    check_option(!given || used, option, "{}: {}, expected {} for {}", path.string(), name(format), expected, option);
  }
}

}  // namespace

DataSource open_data(const fs::path& path, const DataOptions& options) {
  check_option(options.val_split >= 0 && options.val_split < 1, "val_split",
               "{}: val_split is {}, expected at least 0 and below 1", path.string(), options.val_split);
  check(options.limit_train >= 0 && options.limit_validation >= 0,
        "{}: limit_train and limit_validation are {} and {}, expected at least 1, or 0", path.string(),
        options.limit_train, options.limit_validation);
  check_option(options.max_pixels >= 0, "max_pixels", "{}: max_pixels is {}, expected at least 1, or 0", path.string(),
               options.max_pixels);
  check(options.context >= 1, "{}: a context of {} characters, expected at least 1", path.string(), options.context);
  check_option(options.image_size >= 0, "image_size", "{}: image_size is {}, expected at least 1, or 0", path.string(),
               options.image_size);
  const DataFormat format = options.format ? *options.format : detect_format(path);
  check_use(path, format, options);
  check(options.task != TaskKind::language || format == DataFormat::text,
        "{}: {}, expected a text for the task language", path.string(), name(format));
  switch (format) {
    case DataFormat::csv: return open_table(path, options);
    case DataFormat::text: return open_text(path, options);
    case DataFormat::npy:
    case DataFormat::cifar:
    case DataFormat::idx:
    case DataFormat::safetensors: return open_arrays(path, format, options);
    case DataFormat::images: return open_images(path, options);
  }
  fail("unknown format {}", static_cast<int>(format));
}

DataExamples open_examples(const fs::path& path, const DataSchema& schema, const ExampleOptions& options) {
  DataExamples examples;
  const auto number_names = [&](std::int64_t count) {
    for (std::int64_t i = 1; i <= count; ++i) examples.names.push_back(std::to_string(i));
  };
  if (schema.table) {
    const std::string& delimiter = schema.table->delimiter;
    const Table table = read_csv(path, {.delimiter = delimiter.empty() ? std::nullopt : std::optional(delimiter[0]),
                                        .header = schema.table->has_header,
                                        .skip_broken = options.skip_broken});
    std::vector<std::int64_t> rows(static_cast<std::size_t>(table.rows()));
    std::iota(rows.begin(), rows.end(), 0);
    const auto& columns = table.names();
    const auto target = std::ranges::find(columns, schema.table->target);
    MissingTargets missing;
    if (options.skip_broken && options.labels && target != columns.end()) {
      leave_out_missing(table, target - columns.begin(), rows, missing);
    }
    check(!rows.empty(), "{}: no row is left: the target is missing in all {}", path.string(), table.rows());
    DamagedRows damaged;
    if (options.skip_broken) {
      std::vector<std::int64_t> numbers;
      const auto add = [&](const std::string& name) {
        const auto found = std::ranges::find(columns, name);
        if (found != columns.end()) numbers.push_back(found - columns.begin());  // TableEncoder misses a column
      };
      for (const TableColumn& column : schema.table->columns) {
        if (column.kind == TableColumn::Kind::number) add(column.name);
      }
      if (options.labels && schema.task == TaskKind::regression) add(schema.table->target);
      leave_out_damaged(table, numbers, rows, damaged);
      check(!rows.empty(), "{}: no row is left: each has a damaged number, such as {}", path.string(),
            fmt::join(damaged.first, ", "));
    }
    const auto data = std::make_shared<TableDataset>(table, *schema.table, rows, options.unseen, options.labels);
    examples.labeled = data->labeled();
    examples.unseen = data->unseen();
    examples.data = data;
    examples.skipped = table.skipped() + missing.count + damaged.count;
    examples.names = row_names(table, rows);
    return examples;
  }
  if (schema.array) {
    std::error_code error;
    const bool by_path = schema.format != DataFormat::cifar && schema.format != DataFormat::idx;
    const ArrayFiles files = find_arrays(path, by_path ? detect_format(path) : schema.format);
    const ArrayPair& pair = files.test ? *files.test : *files.train;
    examples.labeled = options.labels && pair.y.has_value();
    examples.data = std::make_shared<ArrayDataset>(pair.x, examples.labeled ? pair.y : std::nullopt, *schema.array);
    number_names(examples.data->size());
    return examples;
  }
  if (schema.image) return open_image_examples(path, schema, options);
  check(schema.format == DataFormat::text, "{}: the model learned {}, which have no examples of this kind",
        path.string(), name(schema.format));
  const std::string text = read_text(path);
  std::string known;
  for (const std::string& character : schema.classes) known += character;
  examples.labeled = true;
  examples.data =
      std::make_shared<TextDataset>(CharacterSet(known).encode(text), TextOptions{.context = schema.input.at(0)});
  number_names(examples.data->size());
  return examples;
}

TableMlpOptions table_mlp_options(const DataSchema& schema) {
  check(schema.input.size() == 1 && schema.format != DataFormat::text,
        "table mlp: examples of {} axes, expected rows of a table or of an array", schema.input.size());
  TableMlpOptions options{.numbers = schema.input[0], .classes = schema.outputs};
  if (!schema.table) return options;
  options.numbers = schema.table->number_features();
  options.vocabularies = schema.table->vocabularies();
  for (const TableColumn& column : schema.table->columns) {
    if (column.kind == TableColumn::Kind::category) options.missing.push_back(column.missing);
  }
  return options;
}

std::function<Tensor(const Tensor&, const Tensor&)> task_loss(const DataSchema& schema, double label_smoothing) {
  switch (schema.task) {
    case TaskKind::classification: return nullptr;
    case TaskKind::regression:
      return [](const Tensor& outputs, const Tensor& labels) { return mse_loss(outputs, labels); };
    case TaskKind::language: break;
  }
  return [label_smoothing](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(flatten(logits, 0, 1), flatten(labels, 0, 1), {.label_smoothing = label_smoothing});
  };
}

std::vector<Metric> task_metrics(const DataSchema& schema) {
  const metrics::ClassOptions axis{.dim = -1};
  if (schema.task == TaskKind::classification) return {metrics::accuracy(axis)};
  if (schema.task == TaskKind::language) return {metrics::accuracy(axis), metrics::perplexity(axis)};
  // Converts errors of normalized numbers to the units of the data.
  const auto in_units = [stddev = schema.target_stddev](const Tensor& outputs, const Tensor& targets) {
    const Tensor error = outputs - targets;
    return stddev.size() == 1 ? error * stddev[0] : error * tensor(stddev, {.device = outputs.device()});
  };
  return {
      {.name = "mean_absolute_error",
       .values = [in_units](const Tensor& outputs, const Tensor& targets) { return abs(in_units(outputs, targets)); },
       .smaller_is_better = true},
      {.name = "mean_squared_error",
       .values = [in_units](const Tensor& outputs,
                            const Tensor& targets) { return square(in_units(outputs, targets)); },
       .smaller_is_better = true}};
}

}  // namespace lockstep
