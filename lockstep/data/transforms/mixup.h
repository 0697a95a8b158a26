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
  // The part of the first example is drawn once a batch from the Beta(alpha, alpha) distribution.
  double alpha = 1;
};

// Example i of the batch becomes part * example i + (1 - part) * example i - 1, and so do its probabilities. The batch
// is {f32 [n, ...], labels i64 [n]}; the result {f32 [n, ...], f32 [n, classes]}. For
// DataLoaderOptions::batch_transform.
class MixUp {
 public:
  explicit MixUp(const MixOptions& options);
  Example operator()(const Example& batch, RandomKey key) const;

 private:
  MixOptions options_;
};

// A rectangle of example i, the same in the whole batch, shows example i - 1. Its area, after it has been cut at the
// border, decides the probabilities. Batches are {f32 [n, channels, height, width], i64 [n]}.
class CutMix {
 public:
  explicit CutMix(const MixOptions& options);
  Example operator()(const Example& batch, RandomKey key) const;

 private:
  MixOptions options_;
};

}  // namespace lockstep
