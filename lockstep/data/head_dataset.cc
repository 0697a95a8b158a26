#include "lockstep/data/head_dataset.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep {

HeadDataset::HeadDataset(std::shared_ptr<const Dataset> inner, std::int64_t count)
    : inner_(std::move(inner)), count_(std::min(count, inner_->size())) {
  check(count >= 0, "head dataset: {} examples, expected at least 0", count);
}

}  // namespace lockstep
