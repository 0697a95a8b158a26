// Samplers choose the order of the examples. Each sampler yields part or all of one global order, which depends only on
// (seed, epoch). Any process can compute it, so a resumed run can find its place. A sampler without a seed takes that
// of its DataLoader or Trainer (except DistributedSampler) or, if there is none, RuntimeOptions::seed of this process,
// 0 without a Runtime.
//
//   DataLoader loader(data, {.sampler = std::make_shared<SequentialSampler>(data.size())});
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Returns the indices of the examples of epoch `epoch`, in order. Must be a pure function of its argument that
  // several threads may call at once.
  virtual std::vector<std::int64_t> order(std::int64_t epoch) const = 0;
  // The same for a loader with this seed, if it has one: samplers without a seed of their own, also those that order()
  // calls, use it, except DistributedSampler.
  std::vector<std::int64_t> order_for(std::optional<std::uint64_t> seed, std::int64_t epoch) const;
  struct RankSizes {
    std::int64_t least = 0, most = 0;
  };
  // Smallest and largest number of examples per rank, for samplers that divide the data among ranks. Loaders use them
  // to make the same number of batches on every rank.
  virtual std::optional<RankSizes> rank_sizes() const { return std::nullopt; }
};

// 0, 1, ..., size - 1 in every epoch. All samplers throw if size is negative.
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t size);
  std::vector<std::int64_t> order(std::int64_t epoch) const override;

 private:
  std::int64_t size_;
};

// A different permutation in every epoch (Fisher-Yates with counter-based random numbers).
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(std::int64_t size, std::optional<std::uint64_t> seed = {});
  std::vector<std::int64_t> order(std::int64_t epoch) const override;

 private:
  std::int64_t size_;
  std::optional<std::uint64_t> seed_;
};

struct WeightedRandomSamplerOptions {
  // False: each example at most once in an epoch.
  bool replacement = true;
  std::optional<std::uint64_t> seed = {};
};

// Draws `samples` examples in every epoch, with probabilities in proportion to their weights, for example to balance
// rare classes, as torch.utils.data.WeightedRandomSampler. Draws the same in all processes. Throws unless all weights
// are finite and at least 0, and enough of them are above 0 for the draws.
class WeightedRandomSampler : public Sampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, std::int64_t samples, WeightedRandomSamplerOptions options = {});
  std::vector<std::int64_t> order(std::int64_t epoch) const override;

 private:
  std::vector<double> weights_;
  std::int64_t samples_;
  WeightedRandomSamplerOptions options_;
};

struct DistributedSamplerOptions {
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  std::optional<std::uint64_t> seed = {};
  // Skips the last size % world_size examples, so that all ranks have the same number.
  bool drop_last = false;
  // Repeats the first examples until all ranks have the same number, as PyTorch does. Without `pad` and `drop_last`,
  // every example is visited exactly once. Some ranks then have one more than the others, and the others' last batch
  // may be empty.
  bool pad = false;
};

// The part of one rank: examples rank, rank + world_size, ... of the global order. Ignores the loader's seed, which may
// differ between ranks. Throws unless 0 <= rank < world_size, and if `pad` and `drop_last` are both set.
class DistributedSampler : public Sampler {
 public:
  DistributedSampler(std::int64_t size, DistributedSamplerOptions options);
  std::vector<std::int64_t> order(std::int64_t epoch) const override;
  std::optional<RankSizes> rank_sizes() const override;

 private:
  std::int64_t size_;
  DistributedSamplerOptions options_;
};

}  // namespace lockstep
