// Random vectors, to try a program without data.
//
//   DataLoader loader(RandomDataset({.examples = 100, .length = 5}), {.batch_size = 30});
#pragma once

#include <cstdint>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

struct RandomDatasetOptions {
  std::int64_t examples = 0;
  std::int64_t length = 0;
  std::uint64_t seed = 0;
};

// Examples are {f32 [length]}: vectors of standard normal numbers, the same for the same seed.
class RandomDataset : public Dataset {
 public:
  explicit RandomDataset(RandomDatasetOptions options);
  std::int64_t size() const override { return options_.examples; }
  using Dataset::get;
  Example get(std::int64_t index) const override;

 private:
  RandomDatasetOptions options_;
};

}  // namespace lockstep
