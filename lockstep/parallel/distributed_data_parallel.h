// Data parallelism over processes: each rank computes its shards of every batch, on any number of devices, and gradients
// are summed over all of them while backward runs. With the same shards the result has the bits of one process.
//
//   auto group = init_process_group();
//   Runtime runtime;
//   auto communicator = std::make_shared<Communicator>(runtime, group);
//   DistributedDataParallel ddp(net, runtime.devices(), communicator);
//   Sgd optimizer(net.parameters(), {.lr = 0.1});
//   for (Example& batch : loader) {              // this rank's examples
//     auto [x, y] = ddp.split<2>(batch);
//     backward(mse_loss(ddp(x), y));
//     optimizer.step();
//   }
//
// A rank that gives up tells the others why with communicator->abort(reason); without it they learn only that it is gone.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/bucket_reducer.h"

namespace lockstep {

struct DistributedOptions {
  // V of the whole job; 0: one for each device of each rank. At least one for each rank.
  int shards = 0;
  // bf16: every shard's gradient and every sum of two is rounded to it, wherever it is taken, and half as much travels.
  // Part of the recipe: with other bits than f32, but the same for every number of ranks and devices.
  DType gradients = DType::f32;
  BucketOptions buckets{};
  // What else all ranks have to agree on, one item a line: compared before the first step.
  std::string recipe{};
};

// Wraps a model that was initialized on these devices, with all shapes known (see settle_shapes). There is no clone and
// no other state: names stay those of the model.
class DistributedDataParallel {
 public:
  // Collective: compares parameters' and buffers' names, shapes and types and the recipe over all ranks, naming the first
  // difference, and copies rank 0's values to all.
  DistributedDataParallel(Module& module, std::vector<Device> devices, std::shared_ptr<Communicator> communicator,
                          DistributedOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // This rank's rows of a batch, of each part alike (inputs and labels), cut into its shards. Other ranks may have more or
  // fewer rows, or none: their numbers are asked for, and every sample counts the same. Collective: every rank has to call
  // it as often as the others, with no rows where it has run out. Copies do not wait; host memory must not be changed until
  // they are done.
  std::vector<Batch> split(std::span<const Tensor> rows);
  template <std::size_t N>
  std::array<Batch, N> split(const Example& rows);
  // The same where all ranks know the global batch: `samples` are cut into ceil-chunks, and `rows` are those of
  // rows_of(samples). Asks nobody.
  std::vector<Batch> split(std::span<const Tensor> rows, std::int64_t samples);
  // This rank's rows of a global batch: [first, last).
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t samples) const;

  Batch operator()(const Batch& batch) { return module_(batch); }
  // Gradients found while it lives are kept, and summed over processes by the first backward() after it.
  [[nodiscard]] std::unique_ptr<NoSyncGuard> no_sync() { return std::make_unique<NoSyncGuard>(); }

  Module& module() { return module_; }
  Communicator& communicator() { return *communicator_; }
  int shards() const { return shards_; }
  const BucketReducer& reducer() const { return *reducer_; }

 private:
  std::vector<Batch> cut(std::span<const Tensor> rows, std::vector<std::int64_t> counts);
  void compare_ranks(const std::string& recipe);
  void broadcast_values();

  Module& module_;
  std::vector<Device> devices_;
  std::shared_ptr<Communicator> communicator_;
  int shards_ = 0;
  int first_shard_ = 0, last_shard_ = 0;  // of this rank
  std::shared_ptr<BucketReducer> reducer_;
};

// Settles shapes that were left out, by passing an example ([n, ...], host or device) through the model in evaluation
// mode, without recording.
void settle_shapes(Module& module, const Tensor& example, Device device);

template <std::size_t N>
std::array<Batch, N> DistributedDataParallel::split(const Example& rows) {
  check(rows.size() == N, "split: examples have {} parts, expected {}", rows.size(), N);
  std::vector<Batch> batches = split(std::span<const Tensor>(rows));
  std::array<Batch, N> parts;
  std::move(batches.begin(), batches.end(), parts.begin());
  return parts;
}

}  // namespace lockstep
