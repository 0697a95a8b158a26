#include "lockstep/data/array_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int64_t kMostIntegerClasses = 1000, kMostFloatingClasses = 20, kRowsPerClass = 5;

bool is_channel_count(std::int64_t dim) { return dim == 1 || dim == 3 || dim == 4; }

// Mean and standard deviation of each column of the training rows. Subtracts the first row from each row before it
// sums, in the order of the rows, so that a large mean costs little precision.
class RowStatistics {
 public:
  // Element i of a row belongs to column i / per_column % columns.
  RowStatistics(std::size_t columns, std::size_t per_column) : per_column_(per_column), columns_(columns) {}

  void add(std::span<const double> row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      Column& column = columns_[i / per_column_ % columns_.size()];
      const double v = row[i];
      if (column.count == 0) column.first = column.least = column.most = v;
      const double d = v - column.first;
      ++column.count;
      column.sum += d;
      column.squares += d * d;
      column.least = std::min(column.least, v);
      column.most = std::max(column.most, v);
    }
  }

  void finish(const std::string& where, std::vector<double>& mean, std::vector<double>& stddev) const {
    for (const Column& c : columns_) {
      if (c.count == 0 || c.least == c.most) {
        mean.push_back(c.least);
        stddev.push_back(1);
        continue;
      }
      const auto n = static_cast<double>(c.count);
      const double shift = c.sum / n;
      const double deviation = std::sqrt(std::max(c.squares / n - shift * shift, 0.0));
      mean.push_back(c.first + shift);
      stddev.push_back(deviation > 0 ? deviation : 1);
      check(std::isfinite(mean.back()) && std::isfinite(stddev.back()),
            "{}: the numbers from {} to {} have no mean and standard deviation in f64", where, c.least, c.most);
    }
  }

 private:
  struct Column {
    std::int64_t count = 0;
    double first = 0, sum = 0, squares = 0, least = 0, most = 0;
  };
  std::size_t per_column_;
  std::vector<Column> columns_;
};

void add_rows(const FileArray& array, std::span<const std::int64_t> rows, RowStatistics& statistics) {
  std::vector<double> values(static_cast<std::size_t>(array.row_elements()));
  for (const std::int64_t row : rows) {
    array.read(row, 1, std::span(values));
    for (const double v : values) {
      check(std::isfinite(v), "{}: row {} has {}, expected finite numbers", array.file(), row, v);
    }
    statistics.add(values);
  }
}

void settle_input(const FileArray& x, ArraySchema& schema) {
  schema.row.assign(x.dims().begin() + (x.dims().empty() ? 0 : 1), x.dims().end());
  const auto& row = schema.row;
  check(!x.dims().empty() && row.size() <= 3 && std::ranges::find(row, 0) == row.end(),
        "{}: {}, expected [rows, elements], or pictures [rows, height, width], [rows, channels, height, width], or "
        "[rows, height, width, channels]",
        x.file(), x.describe());
  switch (row.size()) {
    case 0: schema.input = {1}; break;
    case 1: schema.input = row; break;
    case 2: schema.input = {1, row[0], row[1]}; break;
    case 3:
      schema.channels_last = !is_channel_count(row[0]) && is_channel_count(row[2]);
      schema.input = schema.channels_last ? std::vector{row[2], row[0], row[1]} : row;
      break;
  }
}

// The columns are the channels of a picture, or the elements of another row.
void learn_normalization(const FileArray& x, std::span<const std::int64_t> rows, bool bytes, ArraySchema& schema) {
  const bool picture = schema.input.size() == 3;
  if (picture && x.type() == ElementType::u8 && !bytes) {
    schema.divisor = 255;
    return;
  }
  if (picture && x.type() == ElementType::boolean) return;
  const auto columns = static_cast<std::size_t>(schema.input[0]);
  const std::size_t per_column = schema.channels_last ? 1 : static_cast<std::size_t>(x.row_elements()) / columns;
  RowStatistics statistics(columns, per_column);
  add_rows(x, rows, statistics);
  statistics.finish(x.file(), schema.mean, schema.stddev);
}

void learn_labels(const FileArray& y, const SplitRows& rows, const ArraySchemaOptions& options, ArraySchema& schema) {
  check(y.dims().size() <= 2 && y.row_elements() >= 1,
        "{}: {}, expected one label or one row of numbers for each example", y.file(), y.describe());
  check(options.task != TaskKind::language, "arrays: the task language, expected classification or regression");
  const std::int64_t most = is_floating(y.type()) ? kMostFloatingClasses : kMostIntegerClasses;
  std::set<std::int64_t> values;
  std::vector<double> one(static_cast<std::size_t>(y.row_elements()));
  bool whole = y.row_elements() == 1;
  const bool named = !options.class_names.empty();
  if (whole && options.task != TaskKind::regression) {
    for (const auto* part : {&rows.train, &rows.validation}) {
      for (const std::int64_t row : *part) {
        y.read(row, 1, std::span(one));
        whole = one[0] == std::trunc(one[0]) && std::abs(one[0]) < 0x1p53;
        if (!whole) {
          check(options.task != TaskKind::classification, "{}: row {} has {}, expected a whole number for a class",
                y.file(), row, one[0]);
          break;
        }
        values.insert(static_cast<std::int64_t>(one[0]));
      }
      if (!whole) break;
    }
  }
  check(options.task != TaskKind::classification || y.row_elements() == 1,
        "{}: {}, expected one whole number for each example to learn classes", y.file(), y.describe());
  const std::int64_t different = std::ssize(values);
  const std::int64_t count = std::ssize(rows.train) + std::ssize(rows.validation);
  const bool few = whole && ((different <= most && different * kRowsPerClass <= count) || named);
  schema.task = options.task.value_or(few ? TaskKind::classification : TaskKind::regression);
  if (schema.task == TaskKind::classification) {
    check(different >= 2 || named, "{}: the label is {} in every row, expected at least two classes", y.file(),
          values.empty() ? 0 : *values.begin());
    if (named) {
      for (std::size_t c = 0; c < options.class_names.size(); ++c) values.insert(static_cast<std::int64_t>(c));
      check(std::ssize(values) == std::ssize(options.class_names), "{}: labels from {} to {}, expected 0 to {}",
            y.file(), *values.begin(), *values.rbegin(), options.class_names.size() - 1);
    }
    schema.values.assign(values.begin(), values.end());
    schema.classes = options.class_names;
    if (!named) {
      for (const std::int64_t value : schema.values) schema.classes.push_back(std::to_string(value));
    }
    schema.reason = fmt::format("the labels are {} whole numbers", different);
  } else {
    RowStatistics statistics(one.size(), 1);
    add_rows(y, rows.train, statistics);
    statistics.finish(y.file(), schema.target_mean, schema.target_stddev);
    schema.reason = y.row_elements() > 1 ? fmt::format("the labels have {} numbers each", y.row_elements())
                    : whole              ? std::string("the labels are many whole numbers")
                                         : std::string("the labels are not whole numbers");
  }
  if (options.task) schema.reason = "as asked for";
}

std::vector<std::int64_t> all_rows_of(const FileArray& x) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(x.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

Shape with_batch(std::int64_t n, const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> all{n};
  all.insert(all.end(), dims.begin(), dims.end());
  return Shape(std::span<const std::int64_t>(all));
}

}  // namespace

SplitRows split_rows(const FileArray& x, const FileArray& y, double validation_share) {
  check(x.rows() == y.rows(), "{} has {} rows, {} has {}, expected as many", x.file(), x.rows(), y.file(), y.rows());
  SplitRows rows;
  if (validation_share == 0) return {.train = all_rows_of(x)};
  const auto row_bytes = [](const FileArray& array) {
    return static_cast<std::size_t>(array.row_elements()) * item_size(array.type());
  };
  std::vector<std::byte> content(row_bytes(x) + row_bytes(y));
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    x.read_bytes(row, 1, std::span(content).first(row_bytes(x)));
    y.read_bytes(row, 1, std::span(content).subspan(row_bytes(x)));
    (in_validation(content, validation_share) ? rows.validation : rows.train).push_back(row);
  }
  return rows;
}

ArraySchema make_array_schema(const FileArray& x, const FileArray& y, const SplitRows& rows,
                              const ArraySchemaOptions& options) {
  check(x.rows() == y.rows(), "{} has {} rows, {} has {}, expected as many", x.file(), x.rows(), y.file(), y.rows());
  check(!rows.train.empty(), "{}: no rows for training", x.file());
  ArraySchema schema{.type = x.type()};
  settle_input(x, schema);
  learn_normalization(x, rows.train, options.normalize_bytes, schema);
  learn_labels(y, rows, options, schema);
  return schema;
}

ArrayDataset::ArrayDataset(FileArray x, std::optional<FileArray> y, ArraySchema schema, std::vector<std::int64_t> rows)
    : x_(std::move(x)), y_(std::move(y)), schema_(std::move(schema)), rows_(std::move(rows)) {
  const std::vector<std::int64_t> row(x_.dims().begin() + (x_.dims().empty() ? 0 : 1), x_.dims().end());
  check(row == schema_.row && !x_.dims().empty(), "{}: rows of [{}], expected [{}] as in training", x_.file(),
        fmt::join(row, ", "), fmt::join(schema_.row, ", "));
  if (schema_.input.size() == 3 && schema_.type) {
    check((x_.type() == ElementType::u8) == (*schema_.type == ElementType::u8),
          "{}: pictures of {}, expected {} as in training: bytes are 0 to 255, other numbers are as they are",
          x_.file(), name(x_.type()), name(*schema_.type));
  }
  for (const std::int64_t r : rows_) {
    check(r >= 0 && r < x_.rows(), "{}: row {} is out of range [0, {})", x_.file(), r, x_.rows());
  }
  if (!y_) return;
  check(x_.rows() == y_->rows(), "{} has {} rows, {} has {}, expected as many", x_.file(), x_.rows(), y_->file(),
        y_->rows());
  label_size_ = y_->row_elements();
  if (schema_.task == TaskKind::classification) {
    check(label_size_ == 1, "{}: {}, expected one label for each example", y_->file(), y_->describe());
    std::int64_t value = 0;
    for (const std::int64_t r : rows_) {
      y_->read(r, 1, std::span(&value, 1));
      const auto found = std::ranges::lower_bound(schema_.values, value);
      check(found != schema_.values.end() && *found == value, "{}: row {} has label {}, expected one of the {} classes",
            y_->file(), r, value, schema_.values.size());
      labels_.push_back(found - schema_.values.begin());
    }
  } else {
    check(label_size_ == std::ssize(schema_.target_mean), "{}: {}, expected {} numbers for each example", y_->file(),
          y_->describe(), schema_.target_mean.size());
  }
}

ArrayDataset::ArrayDataset(FileArray x, std::optional<FileArray> y, ArraySchema schema)
    : ArrayDataset(x, std::move(y), std::move(schema), all_rows_of(x)) {}

Example ArrayDataset::get(std::int64_t index) const {
  Example one = batch(std::span(&index, 1), {});
  one[0] = one[0].reshape(Shape(std::span<const std::int64_t>(schema_.input)));
  if (y_) one[1] = one[1].reshape(schema_.task == TaskKind::classification ? Shape{} : Shape{label_size_});
  return one;
}

Example ArrayDataset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey>) const {
  const std::int64_t n = std::ssize(indices);
  const bool classes = schema_.task == TaskKind::classification;
  Tensor x = Tensor::host(with_batch(n, schema_.input));
  Example batch{x};
  if (y_) batch.push_back(classes ? Tensor::host({n}, DType::i64) : Tensor::host({n, label_size_}));
  const auto elements = static_cast<std::size_t>(x_.row_elements());
  const auto channels = static_cast<std::size_t>(schema_.input[0]);
  const std::size_t per_channel = elements / channels;
  const bool normalized = !schema_.mean.empty();
  // The fast path, for Fashion-MNIST and the like: contiguous bytes that are only divided.
  const bool bytes_as_they_lie = x_.type() == ElementType::u8 && !normalized && !schema_.channels_last;
  std::vector<std::uint8_t> buffer(bytes_as_they_lie ? elements : 0);
  // Prefetches rows, because shuffled rows lie anywhere in memory and waiting for them would take most of the time.
  constexpr std::size_t kAhead = 4, kLine = 64;
  std::vector<float> plain(normalized ? 0 : elements);
  std::vector<double> exact(normalized ? elements : 0);
  std::vector<double> numbers(static_cast<std::size_t>(label_size_));
  auto* out = x.data_ptr<float>();
  auto* const of_class = y_ && classes ? batch[1].data_ptr<std::int64_t>() : nullptr;
  auto* const of_numbers = y_ && !classes ? batch[1].data_ptr<float>() : nullptr;
  const auto divisor = static_cast<float>(schema_.divisor);
  for (std::size_t i = 0; i < indices.size(); ++i, out += elements) {
    check(indices[i] >= 0 && indices[i] < size(), "array dataset: example {} is out of range [0, {})", indices[i],
          size());
    const std::int64_t r = rows_[static_cast<std::size_t>(indices[i])];
    if (bytes_as_they_lie) {
      const auto* shades = reinterpret_cast<const std::uint8_t*>(x_.row_in_memory(r));
      if (shades == nullptr) {
        x_.read(r, 1, std::span(buffer));
        shades = buffer.data();
      } else if (i + kAhead < indices.size() && indices[i + kAhead] >= 0 && indices[i + kAhead] < size()) {
        const auto later = static_cast<std::size_t>(indices[i + kAhead]);
        const std::byte* const row = x_.row_in_memory(rows_[later]);
        for (std::size_t e = 0; e < elements; e += kLine) __builtin_prefetch(row + e);
        if (of_class != nullptr) __builtin_prefetch(&labels_[later]);
      }
      for (std::size_t e = 0; e < elements; ++e) out[e] = static_cast<float>(shades[e]) / divisor;
    } else {
      normalized ? x_.read(r, 1, std::span(exact)) : x_.read(r, 1, std::span(plain));
      bool finite = true;
      for (std::size_t e = 0; e < elements; ++e) {
        const std::size_t channel = schema_.channels_last ? e % channels : e / per_channel;
        const std::size_t place = schema_.channels_last ? channel * per_channel + e / channels : e;
        const float value = normalized
                                ? static_cast<float>((exact[e] - schema_.mean[channel]) / schema_.stddev[channel])
                                : plain[e] / divisor;
        finite = finite && std::isfinite(value);
        out[place] = value;
      }
      check(finite, "{}: row {} has a number that is not finite in f32", x_.file(), r);
    }
    if (!y_) continue;
    if (classes) {
      of_class[i] = labels_[static_cast<std::size_t>(indices[i])];
      continue;
    }
    y_->read(r, 1, std::span(numbers));
    auto* const label = of_numbers + i * numbers.size();
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      label[k] = static_cast<float>((numbers[k] - schema_.target_mean[k]) / schema_.target_stddev[k]);
      check(std::isfinite(label[k]), "{}: row {} has a number that is not finite in f32", y_->file(), r);
    }
  }
  return batch;
}

}  // namespace lockstep
