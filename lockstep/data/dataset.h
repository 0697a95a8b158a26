// Data sets: numbered examples in host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"

namespace LOCKSTEP_API lockstep {

// The parts of one example, such as {image, label}, as host tensors, or of a batch, with one more axis in front.
using Example = std::vector<Tensor>;

// Base class for your own data: implement size() and get(). Both must be safe to call from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // 0 <= index < size(). Parts have the same shapes and types for all examples.
  virtual Example get(std::int64_t index) const = 0;
  // For data with random transforms. `key` depends on (seed, epoch, index): an example is the same in every process and
  // differs between epochs.
  virtual Example get(std::int64_t index, RandomKey key) const {
    (void)key;
    return get(index);
  }
  // Returns examples stacked along axis 0. `keys` is as long as `indices`. The default stacks the results of get().
  virtual Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const;
};

// Example i is row i of each tensor. All tensors are in host memory and have the same size(0).
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(std::vector<Tensor> tensors);
  std::int64_t size() const override { return tensors_[0].size(0); }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;

 private:
  std::vector<Tensor> tensors_;
};

struct RandomDatasetOptions {
  std::int64_t examples = 0;
  std::int64_t length = 0;
  std::uint64_t seed = 0;
};

// Random vectors of standard normal numbers, the same for the same seed.
class RandomDataset : public Dataset {
 public:
  explicit RandomDataset(RandomDatasetOptions options);
  std::int64_t size() const override { return options_.examples; }
  using Dataset::get;
  Example get(std::int64_t index) const override;

 private:
  RandomDatasetOptions options_;
};

// `inner` with `transform` applied to each example as it is loaded.
class MapDataset : public Dataset {
 public:
  using Transform = std::function<Example(Example example, RandomKey key)>;
  MapDataset(std::shared_ptr<const Dataset> inner, Transform transform);
  std::int64_t size() const override { return inner_->size(); }
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;

 private:
  std::shared_ptr<const Dataset> inner_;
  Transform transform_;
};

// The first `count` examples of `inner`, or all of them if there are fewer.
class HeadDataset : public Dataset {
 public:
  HeadDataset(std::shared_ptr<const Dataset> inner, std::int64_t count);
  std::int64_t size() const override { return count_; }
  Example get(std::int64_t index) const override { return inner_->get(index); }
  Example get(std::int64_t index, RandomKey key) const override { return inner_->get(index, key); }
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override {
    return inner_->batch(indices, keys);
  }

 private:
  std::shared_ptr<const Dataset> inner_;
  std::int64_t count_;
};

}  // namespace lockstep
