// What joins a batch's shards where some of them are in other processes. A module that makes one thing of all shards
// (synchronized batch norm, running statistics) sees the others' part through it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "lockstep/ops/norm.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class ShardExchange {
 public:
  virtual ~ShardExchange() = default;

  // Samples of each of the V shards of the whole batch; 0: that shard is missing, and so is all that is made of it.
  virtual const std::vector<std::int64_t>& counts() const = 0;

  // parts[s]: what shard s of this process contributes, empty for others' shards; as many tensors of the same shapes and
  // types for every shard. Returns the same for all shards with samples, nothing for missing ones. Pushes one task, on
  // the urgent lane, and does not wait; every process has to call in the same order. A process whose only shard is
  // missing gives tensors all the same: they tell shapes.
  virtual std::vector<std::vector<Tensor>> gather(std::vector<std::vector<Tensor>> parts, std::string_view what) = 0;

  // Calls `walk`, which describes the backward() of such a batch. The gradients that it finds are summed over all
  // processes, as soon as they are computed; that of a parameter for which this is not so is an error.
  virtual void backward(const std::function<void()>& walk) = 0;
};

// The statistics of all shards. parts[s] is shard s's, undefined for others'; `pixels` is H * W.
std::vector<ops::BatchStats> gather_stats(ShardExchange& exchange, std::span<const ops::BatchStats> parts,
                                          std::int64_t pixels);

}  // namespace lockstep
