#include "lockstep/task/data_schema.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kSchema = "data schema";
constexpr std::size_t kSchemaDepth = 8;
constexpr std::int64_t kSchemaVersion = 1;

ordered_json to_json_texts(const std::vector<std::string>& texts) {
  ordered_json all = ordered_json::array();
  for (const std::string& text : texts) all.push_back(to_json_text(text));
  return all;
}

// Values of one JSON object, by name.
class SchemaReader {
 public:
  SchemaReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    check(object.is_object(), "{}: {} is {}, expected an object", kSchema, where_, excerpt(object));
  }

  bool has(const char* key) const { return object_.contains(key); }
  const json& at(const char* key) const {
    check(object_.contains(key), "{}: {} has no {}", kSchema, where_, key);
    return object_[key];
  }
  std::string text(const char* key) const { return text_of(at(key), key); }
  bool boolean(const char* key) const {
    check(at(key).is_boolean(), "{}: {} is {}, expected true or false", kSchema, key, excerpt(at(key)));
    return at(key).get<bool>();
  }
  double number(const char* key) const { return number_of(at(key), key); }
  // A standard deviation or divisor.
  double positive(const char* key) const {
    const double value = number(key);
    check(value > 0, "{}: {} is {}, expected a number above 0", kSchema, key, value);
    return value;
  }
  std::int64_t count(const char* key) const { return count_of(at(key), key); }
  template <typename F>
  auto list(const char* key, const F& f) const {
    const json& values = at(key);
    check(values.is_array(), "{}: {} is {}, expected a list", kSchema, key, excerpt(values));
    std::vector<std::decay_t<decltype(f(values, key))>> all;
    for (const json& value : values) all.push_back(f(value, key));
    return all;
  }
  std::vector<std::string> texts(const char* key) const { return list(key, text_of); }
  std::vector<double> numbers(const char* key) const { return list(key, number_of); }
  std::vector<double> positives(const char* key) const {
    std::vector<double> values = numbers(key);
    for (const double value : values) check(value > 0, "{}: {} has {}, expected numbers above 0", kSchema, key, value);
    return values;
  }
  std::vector<std::int64_t> counts(const char* key) const { return list(key, count_of); }
  std::vector<std::int64_t> integers(const char* key) const {
    return list(key, [](const json& value, const char* name) {
      check(value.is_number_integer() &&
                (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max()),
            "{}: {} has {}, expected an integer", kSchema, name, excerpt(value));
      return value.get<std::int64_t>();
    });
  }

 private:
  static std::string text_of(const json& value, const char* key) {
    check(value.is_string(), "{}: {} has {}, expected a text", kSchema, key, excerpt(value));
    return from_json_text(value.get<std::string>());
  }
  static double number_of(const json& value, const char* key) {
    check(value.is_number() && std::isfinite(value.get<double>()), "{}: {} has {}, expected a finite number", kSchema,
          key, excerpt(value));
    return value.get<double>();
  }
  static std::int64_t count_of(const json& value, const char* key) {
    check(value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{1} << 48,
          "{}: {} has {}, expected a whole number from 0", kSchema, key, excerpt(value));
    return value.get<std::int64_t>();
  }

  const json& object_;
  std::string where_;
};

ordered_json to_json(const TableSchema& schema) {
  ordered_json columns = ordered_json::array();
  for (const TableColumn& column : schema.columns) {
    ordered_json one{{"name", to_json_text(column.name)}, {"missing", column.missing}};
    if (column.kind == TableColumn::Kind::number) {
      one["mean"] = column.mean;
      one["stddev"] = column.stddev;
    } else {
      one["categories"] = to_json_texts(column.categories);
    }
    columns.push_back(std::move(one));
  }
  ordered_json all{{"columns", std::move(columns)},
                   {"target", to_json_text(schema.target)},
                   {"has_header", schema.has_header},
                   {"numeric_classes", schema.numeric_classes},
                   {"left_out", to_json_text(schema.left_out)},
                   {"reason", schema.reason}};
  if (schema.table_columns > 0) all["table_columns"] = schema.table_columns;
  if (!schema.delimiter.empty()) all["delimiter"] = to_json_text(schema.delimiter);
  return all;
}

TableSchema table_from(const json& object, const DataSchema& common) {
  const SchemaReader reader(object, "table");
  TableSchema schema{.target = reader.text("target"), .task = common.task, .classes = common.classes};
  schema.columns = reader.list("columns", [](const json& one, const char*) {
    const SchemaReader column(one, "a column");
    TableColumn made{.name = column.text("name"), .missing = column.boolean("missing")};
    if (column.has("categories")) {
      made.kind = TableColumn::Kind::category;
      made.categories = column.texts("categories");
      check(std::ranges::is_sorted(made.categories), "{}: the categories of {} are not sorted", kSchema,
            excerpt(made.name));
    } else {
      made.mean = column.number("mean");
      made.stddev = column.positive("stddev");
    }
    return made;
  });
  schema.has_header = reader.boolean("has_header");
  schema.numeric_classes = reader.boolean("numeric_classes");
  if (reader.has("table_columns")) schema.table_columns = reader.count("table_columns");
  if (reader.has("delimiter")) schema.delimiter = reader.text("delimiter");
  check(schema.delimiter.size() <= 1, "{}: the delimiter is {}, expected one character", kSchema,
        excerpt(schema.delimiter));
  schema.left_out = reader.text("left_out");
  schema.reason = reader.text("reason");
  if (common.task == TaskKind::regression) {
    check(common.target_mean.size() == 1, "{}: {} means of the target, expected 1", kSchema, common.target_mean.size());
    schema.target_mean = common.target_mean[0];
    schema.target_stddev = common.target_stddev[0];
  }
  check(common.input == std::vector{schema.features()}, "{}: the columns have {} features, the input another number",
        kSchema, schema.features());
  return schema;
}

ordered_json to_json(const ArraySchema& schema) {
  ordered_json all{{"row", schema.row},         {"channels_last", schema.channels_last},
                   {"divisor", schema.divisor}, {"mean", schema.mean},
                   {"stddev", schema.stddev},   {"values", schema.values},
                   {"reason", schema.reason}};
  if (schema.type) all["type"] = name(*schema.type);
  return all;
}

ArraySchema array_from(const json& object, const DataSchema& common) {
  const SchemaReader reader(object, "array");
  ArraySchema schema{.row = reader.counts("row"),
                     .input = common.input,
                     .channels_last = reader.boolean("channels_last"),
                     .divisor = reader.positive("divisor"),
                     .mean = reader.numbers("mean"),
                     .stddev = reader.positives("stddev"),
                     .task = common.task,
                     .values = reader.integers("values"),
                     .classes = common.classes,
                     .target_mean = common.target_mean,
                     .target_stddev = common.target_stddev,
                     .reason = reader.text("reason")};
  if (reader.has("type")) schema.type = parse_element_type(reader.text("type"));
  const auto elements = [](const std::vector<std::int64_t>& dims) {
    std::int64_t product = 1;
    for (const std::int64_t dim : dims)
      check(!__builtin_mul_overflow(product, dim, &product), "{}: a shape is too large", kSchema);
    return product;
  };
  check(!schema.input.empty() && elements(schema.row) == elements(schema.input) && elements(schema.row) > 0,
        "{}: rows have {} elements, inputs {}", kSchema, elements(schema.row), elements(schema.input));
  check(
      (schema.mean.empty() || std::ssize(schema.mean) == schema.input[0]) && schema.mean.size() == schema.stddev.size(),
      "{}: {} means and {} deviations for {} channels", kSchema, schema.mean.size(), schema.stddev.size(),
      schema.input[0]);
  check(!schema.channels_last || schema.input.size() == 3, "{}: channels_last without a picture", kSchema);
  check(schema.values.size() == schema.classes.size() && std::ranges::is_sorted(schema.values),
        "{}: {} values for {} classes, expected as many, sorted", kSchema, schema.values.size(), schema.classes.size());
  return schema;
}

ordered_json to_json(const ImageSchema& schema) {
  return {{"height", schema.height},
          {"width", schema.width},
          {"channels", schema.channels},
          {"mean", schema.mean},
          {"stddev", schema.stddev}};
}

ImageSchema image_from(const json& object, const DataSchema& common) {
  const SchemaReader reader(object, "image");
  ImageSchema schema{.height = reader.count("height"),
                     .width = reader.count("width"),
                     .channels = reader.count("channels"),
                     .mean = reader.numbers("mean"),
                     .stddev = reader.positives("stddev")};
  check(common.input == std::vector{schema.channels, schema.height, schema.width} && schema.height > 0 &&
            schema.width > 0 && (schema.channels == 1 || schema.channels == 3),
        "{}: pictures of {} x {} x {}, which the input differs from or no picture has", kSchema, schema.channels,
        schema.height, schema.width);
  check(std::ssize(schema.mean) == schema.channels && std::ssize(schema.stddev) == schema.channels,
        "{}: {} means and {} deviations for {} channels", kSchema, schema.mean.size(), schema.stddev.size(),
        schema.channels);
  return schema;
}

}  // namespace

std::string_view name(DataFormat format) { return kDataFormatNames.at(static_cast<std::size_t>(format)); }

DataFormat parse_data_format(std::string_view text) {
  const auto found = std::ranges::find(kDataFormatNames, text);
  check(found != kDataFormatNames.end(), "format {}: expected {}", quoted_cell(text),
        fmt::join(kDataFormatNames, ", "));
  return static_cast<DataFormat>(found - kDataFormatNames.begin());
}

std::string DataSchema::json() const {
  ordered_json all{{"version", kSchemaVersion},
                   {"format", name(format)},
                   {"task", name(task)},
                   {"classes", to_json_texts(classes)},
                   {"input", input},
                   {"outputs", outputs},
                   {"target_mean", target_mean},
                   {"target_stddev", target_stddev}};
  if (table) all["table"] = to_json(*table);
  if (array) all["array"] = to_json(*array);
  if (image) all["image"] = to_json(*image);
  return all.dump(1);
}

DataSchema DataSchema::from_json(std::string_view text) {
  nlohmann::json parsed;
  try {
    parsed = parse_json<nlohmann::json>(text, {.what = std::string(kSchema), .depth = kSchemaDepth, .names = 1000});
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not valid JSON: {}", kSchema, error.what());
  }
  const SchemaReader reader(parsed, "it");
  check(reader.count("version") == kSchemaVersion, "{}: version {}, expected {}", kSchema, reader.count("version"),
        kSchemaVersion);
  DataSchema schema{.format = parse_data_format(reader.text("format")),
                    .task = parse_task_kind(reader.text("task")),
                    .classes = reader.texts("classes"),
                    .input = reader.counts("input"),
                    .outputs = reader.count("outputs"),
                    .target_mean = reader.numbers("target_mean"),
                    .target_stddev = reader.positives("target_stddev")};
  check(schema.target_mean.size() == schema.target_stddev.size(), "{}: {} means and {} deviations of the target",
        kSchema, schema.target_mean.size(), schema.target_stddev.size());
  check(schema.outputs >= 1 && (schema.classes.empty() || schema.outputs == std::ssize(schema.classes)),
        "{}: {} outputs, {} classes", kSchema, schema.outputs, schema.classes.size());
  if (reader.has("table")) schema.table = table_from(reader.at("table"), schema);
  if (reader.has("array")) schema.array = array_from(reader.at("array"), schema);
  if (reader.has("image")) schema.image = image_from(reader.at("image"), schema);
  return schema;
}

InputScale DataSchema::input_scale() const {
  if (image) return {255, image->mean, image->stddev};
  if (array) return {array->mean.empty() ? array->divisor : 1, array->mean, array->stddev};
  return {};
}

std::string schema_hash(DataSchema schema) {
  Sha256 hash;
  // Clears what does not change how examples are made: reasons, and what detects unsuitable data.
  if (schema.table) {
    schema.table->reason.clear();
    schema.table->delimiter.clear();
    schema.table->table_columns = 0;
  }
  if (schema.array) {
    schema.array->reason.clear();
    schema.array->type.reset();
  }
  const std::string text = schema.json();
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

std::vector<std::string> class_names(const DataSchema& schema) {
  std::vector<std::string> names = schema.classes;
  if (schema.format != DataFormat::text) return names;
  for (std::string& name : names)
    name = nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return names;
}

}  // namespace lockstep
