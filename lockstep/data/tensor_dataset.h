// Data that is in memory, as tensors.
//
//   TensorDataset data({images, labels});  // images [n, 1, 28, 28], labels [n]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// Example i is row i of each tensor. All tensors are in host memory and have the same size(0).
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(std::vector<Tensor> tensors);
  std::int64_t size() const override { return tensors_[0].size(0); }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace lockstep
