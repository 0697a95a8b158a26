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

namespace {

RandomKey key_of(std::int64_t index) { return random_key(0, {static_cast<std::uint64_t>(index)}); }

}  // namespace

Example MapDataset::get(std::int64_t index) const { return get(index, key_of(index)); }
Example MapDataset::raw(std::int64_t index) const { return transform_(inner_->raw(index), key_of(index)); }
Example MapDataset::get(std::int64_t index, RandomKey key) const { return transform_(inner_->get(index, key), key); }

}  // namespace lockstep
