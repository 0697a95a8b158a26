// Batches of a data set, made ahead of their use by threads in the background.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"

namespace lockstep {

// Which rows [first, last) of a batch of n examples are wanted in this process. An empty range gives tensors without rows.
using RowsOfBatch = std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t n)>;

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;
  // Instead of `shuffle`.
  std::shared_ptr<const Sampler> sampler{};
  std::uint64_t seed = 0;
  // Leaves out a last batch that is not full, on all ranks if it is not on one.
  bool drop_last = false;
  // Where other processes load the other rows; none: all.
  RowsOfBatch rows{};
  // Batches are put where this device reads them by itself (Tensor::pin), so that split_and_load does not wait for copies.
  Device pin_for{};
  // Threads; 0: batches are made when asked for.
  int workers = 1;
  // Batches that are made ahead, at most.
  int prefetch = 4;
};

//   for (Example& batch : loader) { Tensor images = batch[0], labels = batch[1]; ... }
//
// What comes out does not depend on the number of workers. An exception in a Dataset comes out of the iteration, in the
// place of the batch that it belongs to. Over a DistributedSampler all ranks have as many batches: where a rank has no
// examples left, its batch has no rows.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options);

  // Another order, and other random transforms, for the loops that follow. Counted on by itself after each full loop.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  std::int64_t epoch() const { return epoch_; }
  // The next loop begins with this batch of its epoch: to resume in the middle.
  void skip_batches(std::int64_t count);

  // Batches of an epoch.
  std::int64_t size() const;
  // Examples of batch `number` of an epoch, in all processes together.
  std::int64_t batch_examples(std::int64_t number) const;
  const Dataset& dataset() const { return *dataset_; }

  class Iterator;
  struct End {};
  Iterator begin();
  // A loop over these rows of each batch.
  Iterator begin(RowsOfBatch rows);
  End end() const { return {}; }

 private:
  class Prefetcher;
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::int64_t examples() const;
  // Batches of an epoch with so many examples in this process.
  std::int64_t batches_of(std::int64_t examples) const;
  std::int64_t epoch_ = 0;
  std::int64_t skip_ = 0;
  // Of which epoch, how many: an order takes a while to make.
  mutable std::pair<std::int64_t, std::int64_t> known_examples_{-1, 0};
};

// Stops the workers when it goes away.
class DataLoader::Iterator {
 public:
  Example& operator*() { return current_; }
  Iterator& operator++();
  bool operator==(End) const { return done_; }
  // Examples of the batch, in all processes that share its rows.
  std::int64_t examples() const;
  // Equal in processes whose loops have the same batches: examples, their order, and their random transforms.
  std::uint64_t fingerprint() const;

 private:
  friend class DataLoader;
  Iterator(DataLoader* loader, std::shared_ptr<Prefetcher> prefetcher);

  DataLoader* loader_;
  std::shared_ptr<Prefetcher> prefetcher_;
  Example current_;
  bool done_ = false;
};

}  // namespace lockstep
