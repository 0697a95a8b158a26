#include "lockstep/data/random_dataset.h"

#include <cstdint>

#include "lockstep/base/random.h"

namespace lockstep {

RandomDataset::RandomDataset(RandomDatasetOptions options) : options_(options) {
  check(options.examples >= 0 && options.length >= 1,
        "random dataset: {} examples of length {}, expected at least 0 of length at least 1", options.examples,
        options.length);
}

Example RandomDataset::get(std::int64_t index) const {
  check(index >= 0 && index < size(), "random dataset: example {} is out of range [0, {})", index, size());
  RandomKey key = random_key(options_.seed, {static_cast<std::uint64_t>(index)});
  Tensor x = Tensor::host({options_.length});
  auto* numbers = x.data_ptr<float>();
  for (std::int64_t i = 0; i < options_.length; ++i) {
    numbers[i] = static_cast<float>(random_normal(key, static_cast<std::uint64_t>(i)));
  }
  return {x};
}

}  // namespace lockstep
