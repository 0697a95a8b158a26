// Joins a batch's shards if some of them are in other processes. An operation that makes one thing of all shards (a
// loss, synchronized batch norm, running statistics) sees the others' part through it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/tensor/array.h"

namespace LOCKSTEP_API lockstep {

class ShardExchange {
 public:
  virtual ~ShardExchange() = default;

  // parts[s]: what shard s of this process contributes, empty for others' shards; as many arrays of the same shapes and
  // types for every shard. Returns the same for all shards with samples, nothing for missing ones. Pushes one task, on the
  // urgent lane, and does not wait; every process has to call in the same order. A process whose only shard is missing gives
  // arrays all the same: they tell shapes.
  virtual std::vector<std::vector<Array>> gather(std::vector<std::vector<Array>> parts, std::string_view what) = 0;

  // Whether both join the same shards of the same processes.
  virtual bool joins_as(const ShardExchange& other) const = 0;
};

}  // namespace lockstep
