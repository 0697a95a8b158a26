#include "lockstep/data/dataset.h"

#include "lockstep/data/collate.h"

namespace lockstep {

Example Dataset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const {
  check(!indices.empty(), "dataset: an empty batch");
  std::vector<Example> examples;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    examples.push_back(get(indices[i], keys[i]));
    check(examples[i].size() == examples[0].size(), "dataset: example {} has {} parts, others have {}", indices[i],
          examples[i].size(), examples[0].size());
  }
  return default_collate(examples);
}

}  // namespace lockstep
