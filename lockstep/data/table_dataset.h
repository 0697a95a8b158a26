// Rows of a table as examples.
//
//   TableDataset data(table, schema, rows);
//   auto net = TableMlp(table_mlp_options(schema));  // models/table_mlp.h
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/table_schema.h"

namespace LOCKSTEP_API lockstep {

// Examples are {x f32 [features]} and, if the table has the schema's target, a label: i64 [] of a class, or f32 [1] of
// a number. x has the normalized numbers, then the indices of the categories: see TableSchema. The constructor encodes
// all rows, in 4 bytes for each feature, so the table is not needed afterwards.
class TableDataset : public Dataset {
 public:
  // Throws as TableEncoder does. Without `labels`, ignores the target, whose cells may then hold anything.
  TableDataset(const Table& table, const TableSchema& schema, std::span<const std::int64_t> rows,
               Unseen unseen = Unseen::error, bool labels = true);
  // All rows.
  TableDataset(const Table& table, const TableSchema& schema, Unseen unseen = Unseen::error, bool labels = true);
  std::int64_t size() const override { return size_; }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;
  // Class of each example; empty for regression and without labels.
  const std::vector<std::int64_t>& labels() const { return labels_; }
  bool labeled() const { return labeled_; }
  // Number of cells to which Unseen::as_missing applied.
  std::int64_t unseen() const { return unseen_; }

 private:
  std::int64_t size_ = 0, features_ = 0, unseen_ = 0;
  std::vector<float> x_, targets_;
  std::vector<std::int64_t> labels_;
  bool labeled_ = false;
};

}  // namespace lockstep
