#include "lockstep/data/head_dataset.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep {

HeadDataset::HeadDataset(std::shared_ptr<const Dataset> inner, std::int64_t count)
    : inner_(std::move(inner)), count_(count) {
  check(inner_ != nullptr, "head dataset: no data set");
  check(count >= 0, "head dataset: {} examples, expected at least 0", count);
  count_ = std::min(count, inner_->size());
}

std::int64_t HeadDataset::checked(std::int64_t index) const {
  check(index >= 0 && index < count_, "head dataset: example {} is out of range [0, {})", index, count_);
  return index;
}

}  // namespace lockstep
