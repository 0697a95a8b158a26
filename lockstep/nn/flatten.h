// Layers that merge or split axes.
//
//   net.append(Conv2d({.out_channels = 16, .kernel_size = 5})).append(Flatten()).append(Linear({.out_features = 10}));
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Merges axes start_dim to end_dim into one; by default all but the first.
class Flatten : public Module {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1) : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) override { return flatten(x, start_dim_, end_dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int start_dim_, end_dim_;
};

// Splits axis `dim` into several. One extent may be -1, which is inferred. Throws if the product is not the axis's
// extent.
class Unflatten : public Module {
 public:
  Unflatten(int dim, Shape unflattened_size) : dim_(dim), unflattened_size_(unflattened_size) {}
  Tensor forward(const Tensor& x) override { return unflatten(x, dim_, unflattened_size_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
  Shape unflattened_size_;
};

}  // namespace lockstep
