// Data parallelism over processes. Each rank computes its shards of every batch, on any number of devices, and
// gradients are summed over all ranks while backward runs. With the same shards, the result has the bits of one process
// for any number of examples and ranks: every sample counts once, with the same weight.
//
//   Job job;
//   Net net;
//   DistributedDataParallel ddp(net);
//   Sgd optimizer(net.parameters(), {.lr = 0.1});
//   DataLoader loader(data, {.batch_size = 256, .shuffle = true});  // the same on all ranks
//   for (auto [x, y] : loader.on(ddp)) {                            // this rank's rows of each batch
//     mse_loss(ddp(x), y).backward();
//     optimizer.step();
//   }
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/batch_splitter.h"
#include "lockstep/parallel/batches.h"
#include "lockstep/parallel/job.h"
#include "lockstep/parallel/split.h"

namespace LOCKSTEP_API lockstep {

class BucketReducer;  // parallel/bucket_reducer.h

// Gradients travel in buckets of about this size. The sizes affect time, never the sums.
struct BucketOptions {
  std::int64_t bytes = 25 << 20;
  // The first bucket is small, so that communication begins early.
  std::int64_t first_bytes = 1 << 20;
};

struct DistributedOptions {
  // V of the recipe, the number of shards of the whole job, at least one per rank; 0: one for each device of each rank.
  // The balance has weights for all devices of the job, rank 0's first. The same on all ranks.
  SplitOptions split{};
  // f32 or bf16. With bf16, each shard's gradient and each sum of two gradients is rounded to bf16, which halves the
  // traffic. Part of the recipe: the bits differ from f32's, but do not depend on the number of ranks and devices.
  DType gradients = DType::f32;
  BucketOptions buckets{};
  // Other settings that all ranks must agree on, one item per line. The constructor compares them.
  std::string recipe{};
};

// The result of no_sync(): backward passes do not synchronize while it lives.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(std::shared_ptr<BucketReducer> reducer);
  ~NoSyncGuard();
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  std::shared_ptr<BucketReducer> reducer_;
};

// The part of DistributedDataParallel that is the same for all classes of models.
class DistributedModel : public BatchSplitter {
 public:
  DistributedModel(Module& module, const std::vector<Device>& devices,
                   const std::shared_ptr<Communicator>& communicator, const DistributedOptions& options);
  ~DistributedModel() override;

  // Returns the batches of `loader` as a range. Its examples have N parts (2: inputs and labels), and each part of a
  // batch is cut into this rank's shards. All ranks pass equal loaders: the same data, order, and global batch size as
  // in one process. Each rank loads only its own rows. Collective: the loop first compares the ranks' orders and throws
  // an Error that names a rank that differs.
  template <std::size_t N = 2>
  Batches<N> batches(DataLoader& loader);
  DataLoader::Iterator begin_loop(DataLoader& loader) override;

  // While the returned object lives, backward() accumulates gradients shard by shard. The next backward() after it ends
  // sums them over shards and processes, so several micro-batches cost one reduction. All ranks must do the same.
  [[nodiscard]] std::unique_ptr<NoSyncGuard> no_sync() { return std::make_unique<NoSyncGuard>(reducer_); }

  // Calls `model` on this rank's rows for a loss of this rank's own; see split_own(). Returns the results in one piece,
  // on the first device. Gradients of the module's parameters become the mean over all ranks; those of other tensors
  // are this rank's own. Cuts inputs with as many rows as the first input, and passes other inputs on. If the call
  // changed a buffer, all buffers except batch norm's become those of rank 0. Collective.
  std::vector<Tensor> call_own(std::span<const Tensor> inputs,
                               const std::function<std::vector<Tensor>(std::span<const Tensor>)>& model);
  // Returns whether call_own() takes these inputs: they are whole, and gradients are recorded or the module trains.
  bool takes_own(std::span<const Tensor> inputs) const;

  // Throws if gradients still wait for a step.
  void set_shares(JobShares shares) override;

  Module& module() { return module_; }
  const BucketReducer& reducer() const { return *reducer_; }

 private:
  void broadcast_values();
  void broadcast(std::vector<std::pair<std::string, Parameter>>& values);
  // Returns the buffers that a call may change differently on each rank.
  std::vector<std::pair<std::string, Parameter>> own_buffers();

  Module& module_;
  std::shared_ptr<BucketReducer> reducer_;
};

// Wraps a model that is on these devices, with all shapes known (see settle_shapes). It makes no clone and
// adds no state, so the names stay those of the model. A class that keeps a wrapper names the model's class:
// `DistributedDataParallel<Net>& ddp`.
template <typename M = Module>
class DistributedDataParallel : public DistributedModel {
 public:
  // Collective. Places the model on the devices if nobody did. Compares the recipe and the names, shapes, and types of
  // parameters and buffers over all ranks; an error names the first difference. Then copies rank 0's values to all
  // ranks.
  DistributedDataParallel(M& module, const std::vector<Device>& devices,
                          const std::shared_ptr<Communicator>& communicator, const DistributedOptions& options = {})
      : DistributedModel(module, devices, communicator, options), module_(module) {}
  DistributedDataParallel(M& module, Job& job, const DistributedOptions& options = {})
      : DistributedDataParallel(module, job.devices(), job.communicator(), options) {}
  // Joins the Job of the model's devices; places the model first if nobody did. Throws if there is no such Job.
  explicit DistributedDataParallel(M& module, const DistributedOptions& options = {})
      : DistributedDataParallel(module, static_cast<Module&>(module).devices(),
                                job_of(static_cast<Module&>(module).devices(), "distributed data parallel"), options) {}

  // Calls the model's forward(), with any inputs and outputs: `auto [y, h] = ddp(x, mask)`. Inputs from a batch that is
  // cut over the job give outputs of that batch. Whole tensors are this rank's rows, with a loss of this rank's own, as
  // in torch; see call_own(). They need a model whose results are tensors.
  template <typename... Xs>
  auto operator()(const Tensor& x, const Xs&... more) {
    if constexpr ((std::same_as<Xs, Tensor> && ...)) {
      using Y = decltype(call_model(module_, x, more...));
      const Tensor inputs[] = {x, more...};
      if constexpr (is_tensors<Y>()) {
        if (takes_own(inputs)) return own<Y>(inputs, std::index_sequence_for<Tensor, Xs...>());
      }
    }
    return call_model(module_, x, more...);
  }
  M& module() { return module_; }

 private:
  // Whether Y is a Tensor, or a tuple, pair, or array of them.
  template <typename Y>
  static constexpr bool is_tensors() {
    if constexpr (std::same_as<Y, Tensor>) {
      return true;
    } else if constexpr (requires { std::tuple_size<Y>::value; }) {
      return []<std::size_t... I>(std::index_sequence<I...>) {
        return (std::same_as<std::tuple_element_t<I, Y>, Tensor> && ...);
      }
      (std::make_index_sequence<std::tuple_size_v<Y>>());
    } else {
      return false;
    }
  }

  template <typename Y, std::size_t... I>
  Y own(std::span<const Tensor> inputs, std::index_sequence<I...>) {
    const auto results = call_own(inputs, [this](std::span<const Tensor> rows) -> std::vector<Tensor> {
      Y y = call_model(module_, rows[I]...);
      if constexpr (std::same_as<Y, Tensor>) {
        return {y};
      } else {
        return std::apply([](const auto&... each) { return std::vector<Tensor>{each...}; }, y);
      }
    });
    if constexpr (std::same_as<Y, Tensor>) {
      return results[0];
    } else {
      return [&]<std::size_t... R>(std::index_sequence<R...>) { return Y{results[R]...}; }
      (std::make_index_sequence<std::tuple_size_v<Y>>());
    }
  }

  M& module_;
};

// Settles omitted shapes by passing an example ([n, ...], host or device) through the model in evaluation mode, without
// recording gradients.
void settle_shapes(Module& module, const Tensor& example, Device device);

template <std::size_t N>
Batches<N> DistributedModel::batches(DataLoader& loader) {
  return {loader, std::shared_ptr<BatchSplitter>(std::shared_ptr<void>(), this)};
}

// loader.on(ddp).
template <std::size_t N>
Batches<N> batches_on(DataLoader& loader, DistributedModel& ddp) {
  return ddp.batches<N>(loader);
}

}  // namespace lockstep
