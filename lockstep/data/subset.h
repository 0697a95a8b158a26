// Parts of a data set: chosen examples, and random splits, as into training and validation data.
//
//   const std::vector<Subset> parts = random_split(photos, {0.9, 0.1});
//   Trainer trainer(net, sgd, parts[0], parts[1], {.batch_size = 64});
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// The examples of `inner` with these indices, in this order. An index may occur more than once.
class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> inner, std::vector<std::int64_t> indices);
  template <std::derived_from<Dataset> D>
  Subset(D inner, std::vector<std::int64_t> indices)
      : Subset(std::make_shared<const D>(std::move(inner)), std::move(indices)) {}
  std::int64_t size() const override { return std::ssize(indices_); }
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;
  Example raw(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;
  // Indices in `inner`.
  const std::vector<std::int64_t>& indices() const { return indices_; }

 private:
  std::int64_t inner_index(std::int64_t index) const;

  std::shared_ptr<const Dataset> inner_;
  std::vector<std::int64_t> indices_;
};

// Splits the data into disjoint random parts that cover it, as torch.utils.data.random_split. `lengths` are shares that
// add up to 1 (examples that are left after rounding down go to the first parts, one each) or counts that add up to
// size(). The parts depend on the seed and the size only. Without a seed: RuntimeOptions::seed, or 0.
std::vector<Subset> random_split(const std::shared_ptr<const Dataset>& data, const std::vector<double>& lengths,
                                 std::optional<std::uint64_t> seed = {});
template <std::derived_from<Dataset> D>
std::vector<Subset> random_split(D data, const std::vector<double>& lengths, std::optional<std::uint64_t> seed = {}) {
  return random_split(std::shared_ptr<const Dataset>(std::make_shared<const D>(std::move(data))), lengths, seed);
}

}  // namespace lockstep
