// The first examples of a data set.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// The first `count` examples of `inner`, or all of them if there are fewer.
//
//   HeadDataset few(FashionMnist(load_fashion_mnist(MnistPart::train)), 512);
class HeadDataset : public Dataset {
 public:
  HeadDataset(std::shared_ptr<const Dataset> inner, std::int64_t count);
  template <std::derived_from<Dataset> D>
  HeadDataset(D inner, std::int64_t count) : HeadDataset(std::make_shared<const D>(std::move(inner)), count) {}
  std::int64_t size() const override { return count_; }
  // These throw for an index outside of [0, size()).
  Example get(std::int64_t index) const override { return inner_->get(checked(index)); }
  Example get(std::int64_t index, RandomKey key) const override { return inner_->get(checked(index), key); }
  Example raw(std::int64_t index) const override { return inner_->raw(checked(index)); }
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override {
    for (const std::int64_t index : indices) checked(index);
    return inner_->batch(indices, keys);
  }

 private:
  std::int64_t checked(std::int64_t index) const;

  std::shared_ptr<const Dataset> inner_;
  std::int64_t count_;
};

}  // namespace lockstep
