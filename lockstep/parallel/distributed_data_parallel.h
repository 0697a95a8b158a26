// Data parallelism over processes: each rank computes its shards of every batch, on any number of devices, and gradients
// are summed over all of them while backward runs. With the same shards the result has the bits of one process, for any
// number of examples and ranks: every sample counts once, and the same.
//
//   Job job;
//   net.initialize(Xavier{}, job.devices());
//   DistributedDataParallel ddp(net, job);
//   Sgd optimizer(net.parameters(), {.lr = 0.1});
//   DataLoader loader(data, {.batch_size = 256, .shuffle = true});  // the same on all ranks
//   for (auto [x, y] : ddp.batches(loader)) {                       // this rank's rows of each batch
//     mse_loss(ddp(x), y).backward();
//     optimizer.step();
//   }
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/bucket_reducer.h"
#include "lockstep/parallel/job.h"

namespace LOCKSTEP_API lockstep {

struct DistributedOptions {
  // V of the whole job; 0: one for each device of each rank. At least one for each rank.
  int shards = 0;
  // Weights of all devices, rank 0's first, as in SplitOptions; the same on all ranks. Empty: equal shares.
  std::vector<double> balance{};
  // bf16: every shard's gradient and every sum of two is rounded to it, wherever it is taken, and half as much travels.
  // Part of the recipe: with other bits than f32, but the same for every number of ranks and devices.
  DType gradients = DType::f32;
  BucketOptions buckets{};
  // Other settings that all ranks have to agree on, one item a line: compared before the first step.
  std::string recipe{};
};

template <std::size_t N>
class DistributedBatches;

// Wraps a model that was initialized on these devices, with all shapes known (see settle_shapes). There is no clone and
// no other state: names stay those of the model.
class DistributedDataParallel {
 public:
  // Collective: compares parameters' and buffers' names, shapes and types and the recipe over all ranks, naming the first
  // difference, and copies rank 0's values to all.
  DistributedDataParallel(Module& module, std::vector<Device> devices, std::shared_ptr<Communicator> communicator,
                          DistributedOptions options = {});
  DistributedDataParallel(Module& module, Job& job, DistributedOptions options = {})
      : DistributedDataParallel(module, job.devices(), job.communicator(), std::move(options)) {}
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // A loop over the batches of `loader`, whose examples have N parts (inputs and labels), each cut into this rank's shards.
  // The loader is that of the whole job: the same data, order and global batch size on all ranks, as one process would have
  // it; each rank loads its own rows. Collective: begins with a comparison of the order, that names a rank which differs.
  template <std::size_t N = 2>
  DistributedBatches<N> batches(DataLoader& loader);

  // For other loops. This rank's rows of a batch, of each part alike, cut into its shards. Other ranks may have more or
  // fewer rows, or none: their numbers are asked for, and every sample counts the same. Collective: every rank has to call
  // it as often as the others, with no rows where it has run out. Copies do not wait; host memory must not be changed until
  // they are done.
  std::vector<Tensor> split(std::span<const Tensor> rows);
  template <std::size_t N>
  std::array<Tensor, N> split(const Example& rows) {
    return parts<N>(split(std::span<const Tensor>(rows)));
  }
  // The same where all ranks know the global batch: `samples` are cut into ceil-chunks, and `rows` are those of
  // rows_of(samples). Asks nobody.
  std::vector<Tensor> split(std::span<const Tensor> rows, std::int64_t samples);
  // This rank's rows of a global batch: [first, last).
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t samples) const;

  Tensor operator()(const Tensor& x) { return module_(x); }
  // While the returned object lives, backward() adds up gradients shard by shard; the first backward() after it sums them over
  // shards and processes. Accumulation over micro-batches then costs one reduction. All ranks have to do it alike.
  [[nodiscard]] std::unique_ptr<NoSyncGuard> no_sync() { return std::make_unique<NoSyncGuard>(reducer_); }

  // Collective, between steps and loops over batches: each device computes so many shards from now on. The bits stay the
  // same. Waits for the steps before.
  void set_shares(JobShares shares);
  const JobShares& shares() const { return shares_; }

  Module& module() { return module_; }
  Communicator& communicator() { return *communicator_; }
  int shards() const { return shares_.shards(); }
  const BucketReducer& reducer() const { return *reducer_; }

 private:
  template <std::size_t N>
  friend class DistributedBatches;
  template <std::size_t N>
  static std::array<Tensor, N> parts(std::vector<Tensor> batches);
  DataLoader::Iterator begin_loop(DataLoader& loader);
  std::vector<Tensor> cut(std::span<const Tensor> rows, std::vector<std::int64_t> counts);
  void compare_ranks(int shards, const std::string& recipe);
  void broadcast_values();

  Module& module_;
  std::vector<Device> devices_;
  std::shared_ptr<Communicator> communicator_;
  JobShares shares_;
  std::shared_ptr<BucketReducer> reducer_;
};

// Settles shapes that were left out, by passing an example ([n, ...], host or device) through the model in evaluation
// mode, without recording.
void settle_shapes(Module& module, const Tensor& example, Device device);

// The range of DistributedDataParallel::batches(): `for (auto [x, y] : ddp.batches(loader))`.
template <std::size_t N>
class DistributedBatches {
 public:
  DistributedBatches(DistributedDataParallel& ddp, DataLoader& loader) : ddp_(ddp), loader_(loader) {}

  class Iterator {
   public:
    Iterator(DistributedDataParallel& ddp, DataLoader::Iterator loop) : ddp_(ddp), loop_(std::move(loop)) {}
    std::array<Tensor, N> operator*() { return ddp_.parts<N>(ddp_.split(*loop_, loop_.examples())); }
    Iterator& operator++() {
      ++loop_;
      return *this;
    }
    bool operator==(DataLoader::End end) const { return loop_ == end; }

   private:
    DistributedDataParallel& ddp_;
    DataLoader::Iterator loop_;
  };
  Iterator begin() { return {ddp_, ddp_.begin_loop(loader_)}; }
  DataLoader::End end() const { return {}; }

 private:
  DistributedDataParallel& ddp_;
  DataLoader& loader_;
};

template <std::size_t N>
DistributedBatches<N> DistributedDataParallel::batches(DataLoader& loader) {
  return {*this, loader};
}

template <std::size_t N>
std::array<Tensor, N> DistributedDataParallel::parts(std::vector<Tensor> batches) {
  check(batches.size() == N, "split: examples have {} parts, expected {}", batches.size(), N);
  std::array<Tensor, N> parts;
  std::move(batches.begin(), batches.end(), parts.begin());
  return parts;
}

}  // namespace lockstep
