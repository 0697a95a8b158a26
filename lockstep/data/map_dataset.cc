#include "lockstep/data/map_dataset.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/base/random.h"

namespace lockstep {

MapDataset::MapDataset(std::shared_ptr<const Dataset> inner, Transform transform)
    : inner_(std::move(inner)), transform_(std::move(transform)) {
  check(inner_ != nullptr && transform_ != nullptr, "map dataset: no data or no transform, expected both");
}

Example MapDataset::get(std::int64_t index) const {
  return get(index, random_key(0, {static_cast<std::uint64_t>(index)}));
}
Example MapDataset::get(std::int64_t index, RandomKey key) const { return transform_(inner_->get(index, key), key); }

}  // namespace lockstep
