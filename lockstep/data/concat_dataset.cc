#include "lockstep/data/concat_dataset.h"

#include <algorithm>

namespace lockstep {

ConcatDataset::ConcatDataset(std::vector<std::shared_ptr<const Dataset>> parts) : parts_(std::move(parts)) {
  check(!parts_.empty(), "concat dataset: no data sets");
  std::int64_t end = 0;
  for (const auto& part : parts_) {
    check(part != nullptr, "concat dataset: a data set is null");
    ends_.push_back(end += part->size());
  }
}

std::pair<const Dataset&, std::int64_t> ConcatDataset::place_of(std::int64_t index) const {
  check(index >= 0 && index < size(), "concat dataset: example {} is out of range [0, {})", index, size());
  const auto part = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  return {*parts_[part], part == 0 ? index : index - ends_[part - 1]};
}

Example ConcatDataset::get(std::int64_t index) const {
  const auto [part, number] = place_of(index);
  return part.get(number);
}

Example ConcatDataset::get(std::int64_t index, RandomKey key) const {
  const auto [part, number] = place_of(index);
  return part.get(number, key);
}

Example ConcatDataset::raw(std::int64_t index) const {
  const auto [part, number] = place_of(index);
  return part.raw(number);
}

}  // namespace lockstep
