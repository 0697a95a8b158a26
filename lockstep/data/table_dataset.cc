#include "lockstep/data/table_dataset.h"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

std::vector<std::int64_t> all_rows_of(const Table& table) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(table.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

}  // namespace

TableDataset::TableDataset(const Table& table, const TableSchema& schema, std::span<const std::int64_t> rows,
                           Unseen unseen, bool labels)
    : size_(std::ssize(rows)), features_(schema.features()) {
  const TableEncoder encoder(table, schema, unseen);
  labeled_ = labels && encoder.has_target();
  const bool classes = schema.task == TaskKind::classification;
  x_.resize(rows.size() * static_cast<std::size_t>(features_));
  std::span<float> rest = x_;
  for (const std::int64_t row : rows) {
    check(row >= 0 && row < table.rows(), "{}: row {} is out of range [0, {})", table.file(), row, table.rows());
    unseen_ += encoder.encode(row, rest.first(static_cast<std::size_t>(features_)));
    rest = rest.subspan(static_cast<std::size_t>(features_));
    if (!labeled_) continue;
    if (classes) {
      labels_.push_back(encoder.label(row));
    } else {
      targets_.push_back(encoder.target(row));
    }
  }
}

TableDataset::TableDataset(const Table& table, const TableSchema& schema, Unseen unseen, bool labels)
    : TableDataset(table, schema, all_rows_of(table), unseen, labels) {}

Example TableDataset::get(std::int64_t index) const {
  Example one = batch(std::span(&index, 1), {});
  one[0] = one[0].reshape({features_});
  if (labeled_) one[1] = one[1].reshape(labels_.empty() ? Shape{1} : Shape{});
  return one;
}

Example TableDataset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey>) const {
  const std::int64_t n = std::ssize(indices);
  Tensor x = Tensor::host({n, features_});
  Example batch{x};
  if (labeled_) batch.push_back(labels_.empty() ? Tensor::host({n, 1}) : Tensor::host({n}, DType::i64));
  auto* row = x.data_ptr<float>();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t index = indices[i];
    check(index >= 0 && index < size_, "table dataset: example {} is out of range [0, {})", index, size_);
    row = std::copy_n(x_.data() + index * features_, features_, row);
    if (!labeled_) continue;
    if (labels_.empty()) {
      batch[1].data_ptr<float>()[i] = targets_[static_cast<std::size_t>(index)];
    } else {
      batch[1].data_ptr<std::int64_t>()[i] = labels_[static_cast<std::size_t>(index)];
    }
  }
  return batch;
}

}  // namespace lockstep
