// Makes batches of a data set ahead of use, in background threads.
//
//   DataLoader loader(data, {.batch_size = 128, .shuffle = true});
//   for (auto [images, labels] : loader.on(net)) { ... }                               // where the model is
//   for (Example& batch : loader) { Tensor images = batch[0], labels = batch[1]; ... }  // in host memory
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/data/collate.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"

namespace LOCKSTEP_API lockstep {

struct SplitOptions;  // parallel/split.h

// Changes a finished batch, as MixUp does. `key` depends on (seed, epoch, index of the batch). Must be a pure function
// that several threads may call at once, and must keep the length of axis 0 of each part.
using BatchTransform = std::function<Example(const Example& batch, RandomKey key)>;

// Returns the rows [first, last) that this process loads of a batch of n examples. An empty range gives tensors without
// rows.
using RowsOfBatch = std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t n)>;

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;
  // Chooses the order. Do not combine with `shuffle`.
  std::shared_ptr<const Sampler> sampler{};
  // Seed of random transforms and of the order, unless the sampler has a seed of its own or is a DistributedSampler.
  // Not set: RuntimeOptions::seed of this process when the loop begins, 0 without a Runtime.
  std::optional<std::uint64_t> seed = {};
  // Skips the last batch if it is not full. If it is short on any rank, all ranks skip it.
  bool drop_last = false;
  // Makes each batch from its examples, for examples that do not stack, such as sequences. Gets all examples of a batch
  // even if several processes share its rows, so that all processes pad alike. Empty: Dataset::batch().
  Collate collate{};
  // Changes each batch. It gets the whole batch: if several processes share it, each of them loads all examples.
  BatchTransform batch_transform{};
  // The rows of each batch that this process loads when several processes share a batch. Empty: all rows.
  RowsOfBatch rows{};
  // Pins the memory of batches for this device (Tensor::pin), so that split_and_load copies asynchronously. kHost: does
  // not pin.
  Device pin_for{};
  // Number of background threads, from 0 to 256. 0: the loop makes each batch when it needs it.
  int workers = 1;
  // The largest number of finished batches that wait to be used, at least one. Only with workers.
  int prefetch = 4;
};

// The batches do not depend on the number of workers. If a Dataset throws, the loop throws that exception in place of
// the batch. With a DistributedSampler, all ranks have the same number of batches: a rank that has no examples left
// gets a batch without rows.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options);
  // DataLoader loader(RandomDataset({.examples = 100, .length = 5}), {.batch_size = 30});
  template <std::derived_from<Dataset> D>
  DataLoader(D dataset, DataLoaderOptions options)
      : DataLoader(std::make_shared<const D>(std::move(dataset)), std::move(options)) {}

  // The epoch decides the order and the random transforms of a loop. The first loop has epoch 0, and each further loop
  // has the next epoch, even if a `break` ended the one before. set_epoch() sets the epoch of the next loop, from
  // 0.
  void set_epoch(std::int64_t epoch);
  // The epoch of the loop in progress or, after its end, of the next loop.
  std::int64_t epoch() const { return epoch_; }
  // Makes the next loop begin with batch `count` of epoch(), so that a run can resume in the middle: after a `break`,
  // the next loop continues the interrupted epoch.
  void skip_batches(std::int64_t count);

  // The number of batches in an epoch.
  std::int64_t size() const;
  std::int64_t batch_size() const { return options_.batch_size; }
  // Number of examples in batch `number` of an epoch, over all processes that share its rows.
  std::int64_t batch_examples(std::int64_t number) const;
  const Dataset& dataset() const { return *dataset_; }

  class Iterator;
  struct End {};
  Iterator begin();
  // Begins a loop over these rows of each batch only.
  Iterator begin(RowsOfBatch rows);
  // Begins a loop that pins its batches for this device, unless DataLoaderOptions::pin_for names another.
  Iterator begin_for(Device device);
  Iterator begin(RowsOfBatch rows, Device pin_for);
  End end() const { return {}; }

  // Returns the batches of a loop where the model is, each an array of the parts of its examples, cut into shards: on
  // CPUs, default_shards(batch_size()), so that the bits are the same on any number of devices; on GPUs, one for each
  // device; or as many as the options say, {.shards = 8}. Places the model if nobody did. Examples of three parts:
  // on<3>(net). With a DistributedDataParallel as `model`, the batches have the rows of this rank, like its batches().
  //
  //   for (auto [x, y] : loader.on(net)) mse_loss(net(x), y).backward();
  template <std::size_t N = 2, typename Model>
  auto on(Model& model) & {
    static_assert(
        requires { batches_on<N>(*this, model); },
        "include lockstep/parallel/batches.h for loader.on(net); the model is a Module or a "
        "DistributedDataParallel");
    return batches_on<N>(*this, model);
  }
  template <std::size_t N = 2, typename Model>
  auto on(Model& model, const SplitOptions& options) & {
    return batches_on<N>(*this, model, options);
  }

  template <std::size_t N = 2, typename... Args>
  auto on(Args&&...) && {
    static_assert(sizeof...(Args) == 0,
                  "name the loader, which the loop needs: DataLoader loader(...); loader.on(net)");
  }

 private:
  class Prefetcher;
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::int64_t examples() const;
  // The number of batches in an epoch with this many examples in this process.
  std::int64_t batches_of(std::int64_t examples) const;
  std::int64_t epoch_ = 0;
  bool begun_ = false;  // a loop of epoch_ has begun, so the next loop gets the next epoch
  std::int64_t skip_ = 0;
  // Cache of {epoch, its examples}, because making an order takes time.
  mutable std::pair<std::int64_t, std::int64_t> known_examples_{-1, 0};
};

// The destructor stops the workers.
class DataLoader::Iterator {
 public:
  // No copies: they would take batches from one loop.
  Iterator(Iterator&&) = default;
  Iterator& operator=(Iterator&&) = default;
  Example& operator*() { return current_; }
  Iterator& operator++();
  bool operator==(End) const { return done_; }
  // The number of examples in the batch, over all processes that share its rows.
  std::int64_t examples() const;
  // Hash of what decides the batches: the indices of the examples in order, the batch size, the first batch and the
  // number of batches, the seed, and the epoch. Processes that run the same loop get equal fingerprints.
  std::uint64_t fingerprint() const;

 private:
  friend class DataLoader;
  Iterator(DataLoader* loader, std::shared_ptr<Prefetcher> prefetcher);

  DataLoader* loader_;
  std::int64_t epoch_;
  std::shared_ptr<Prefetcher> prefetcher_;
  Example current_;
  bool done_ = false;
};

}  // namespace lockstep
