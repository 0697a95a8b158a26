// Batches whose examples are mixed with each other, with class probabilities instead of labels: cross_entropy takes
// these as its target.
//
//   DataLoader loader(photos, {.batch_size = 64, .shuffle = true, .batch_transform = MixUp({.classes = 10})});
#pragma once

#include <cstdint>

#include "lockstep/base/random.h"
#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

struct MixOptions {
  std::int64_t classes = 0;
  // The share of an example, against the one it is mixed with, is drawn once per batch from Beta(alpha, alpha).
  double alpha = 1;
};

// Example i becomes share * (example i) + (1 - share) * (example i - 1), and so do its class probabilities; the last
// example comes before example 0. A batch is {f32 [n, ...], labels i64 [n]}; the result is {f32 [n, ...], f32 [n,
// classes]}. For DataLoaderOptions::batch_transform.
class MixUp {
 public:
  explicit MixUp(const MixOptions& options);
  Example operator()(const Example& batch, RandomKey key) const;

 private:
  MixOptions options_;
};

// Example i shows example i - 1 in a rectangle, which is the same in the whole batch. Its area inside the picture
// decides the class probabilities. Batches are {f32 [n, channels, height, width], i64 [n]}.
class CutMix {
 public:
  explicit CutMix(const MixOptions& options);
  Example operator()(const Example& batch, RandomKey key) const;

 private:
  MixOptions options_;
};

}  // namespace lockstep
