// Internal: the placement of a batch: which device of this process computes which shard, and how many samples each
// shard of the job has.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/autograd/shard_exchange.h"
#include "lockstep/autograd/tensor_impl.h"

namespace lockstep {

class ShardCollector;  // autograd/shard_collector.h

// A shard that this process computes.
struct Slot {
  int shard = 0;
  Device device;
  bool operator==(const Slot&) const = default;
};

// Each split of a batch makes a Placement, which the batch's tensors share.
class Placement {
 public:
  // `rows`: the number of samples of each of the job's V shards; 0 for a missing one. `slots`: in the order of shards;
  // a process without samples still has one slot, for an empty shard, so that it joins collectives. `exchange`: access
  // to the shards of other processes; null if there are none. `all_ranks`: if each process has a loss of its own, as
  // with torch's DistributedDataParallel, the batch of all of them; this batch then has this process's samples alone.
  Placement(std::vector<std::int64_t> rows, std::vector<Slot> slots, std::shared_ptr<ShardExchange> exchange = nullptr,
            std::shared_ptr<const Placement> all_ranks = nullptr);

  const std::vector<std::int64_t>& rows() const { return rows_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::shared_ptr<ShardExchange>& exchange() const { return exchange_; }
  // Whether each process has a loss of its own.
  bool own_loss() const { return all_ranks_ != nullptr; }
  // The batch whose samples the statistics of a model's layers cover.
  const Placement& all_ranks() const { return all_ranks_ ? *all_ranks_ : *this; }
  // Whether other processes compute the rest of the step.
  bool joins_ranks() const { return all_ranks().exchange() != nullptr; }
  // Sets the object that cut the batch, and that sums gradients over the processes while it lives.
  void set_wrapper(std::weak_ptr<const void> wrapper) {
    wrapper_ = std::move(wrapper);
    wrapped_ = true;
  }
  bool lost_wrapper() const { return wrapped_ && wrapper_.expired(); }
  // Distinct devices, in the order of slots.
  const std::vector<Device>& devices() const { return devices_; }

  // Slots by turn. Each turn has the next slot of every device that still has one.
  const std::vector<std::vector<std::size_t>>& turns() const { return turns_; }

  // The slot of `shard`; null if another process has it.
  const Slot* slot_of(int shard) const;

  // The number of samples of all shards.
  std::int64_t samples() const { return samples_; }
  std::int64_t rows_of(int shard) const { return rows_[static_cast<std::size_t>(shard)]; }
  // A shard's fraction of the samples, which is the weight of its mean in the batch's mean. 0 if there are no samples.
  double share(int shard) const;
  // The lowest shard with samples; 0 if there is none. Only this shard adds contributions that all shards share.
  int lowest_shard() const;

  // Inside per_shard(): the batch of this shard, and the collector for all its shards. Null elsewhere.
  const std::shared_ptr<const Placement>& batch() const { return batch_; }
  ShardCollector* collector() const { return collector_; }
  void set_collector(ShardCollector* collector, std::shared_ptr<const Placement> batch) {
    collector_ = collector;
    batch_ = std::move(batch);
  }
  void end_collection() { collector_ = nullptr; }

 private:
  std::vector<std::int64_t> rows_;
  std::vector<Slot> slots_;
  std::shared_ptr<ShardExchange> exchange_;
  std::shared_ptr<const Placement> all_ranks_;
  std::weak_ptr<const void> wrapper_;
  bool wrapped_ = false;
  std::vector<Device> devices_;
  std::vector<std::vector<std::size_t>> turns_;
  std::int64_t samples_ = 0;
  ShardCollector* collector_ = nullptr;
  std::shared_ptr<const Placement> batch_;
};

// Whether tensors on a and b have their samples in the same places.
bool same_placement(const std::shared_ptr<const Placement>& a, const std::shared_ptr<const Placement>& b);

// Copies the rows (axis 0) of this process's shards, in shard order, each to its device. Copies are asynchronous: host
// memory is held until they are done and must not be changed meanwhile. Differentiable.
Tensor scatter(const Tensor& rows, std::shared_ptr<const Placement> at);

// Returns this process's samples as one array on `device`, without a history.
Array join_parts(const Tensor& x, Device device);

}  // namespace lockstep
