#include "lockstep/data/dataset.h"

#include "lockstep/data/collate.h"
#include "lockstep/data/history.h"

namespace lockstep {

Example Dataset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const {
  check(!indices.empty(), "dataset: an empty batch");
  std::vector<Example> examples;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    examples.push_back(get(indices[i], keys[i]));
    check(examples[i].size() == examples[0].size(), "dataset: example {} has {} parts, others have {}", indices[i],
          examples[i].size(), examples[0].size());
    for (std::size_t k = 0; k < examples[i].size(); ++k) {
      check_no_history(examples[i][k], "dataset: part {} of example {}", k, indices[i]);
    }
  }
  return default_collate(examples);
}

}  // namespace lockstep
