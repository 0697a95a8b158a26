// Internal: joins a batch's shards if some of them are in other processes. Operations that combine all shards (losses,
// synchronized batch norm, running statistics) use it to get the other processes' part.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/engine/task.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

class ShardExchange {
 public:
  virtual ~ShardExchange() = default;

  // parts[s]: the arrays of shard s of this process, empty for other processes' shards. Every shard has the same number
  // of arrays, with the same shapes and types. Returns the arrays of all shards with samples, and nothing for missing
  // ones. Pushes one task on the urgent lane and does not wait; every process must call in the same order. A process
  // whose only shard is missing still passes arrays, because they give the shapes.
  virtual std::vector<std::vector<Array>> gather(std::vector<std::vector<Array>> parts, std::string_view what) = 0;

  // The lane of the exchanges if it can compute on `device`. A sum of the gathered arrays runs there at once, while the
  // device's urgent lane would have to wake up first.
  virtual std::optional<LaneId> lane(Device device) const = 0;

  // Whether both exchanges join the same shards of the same processes.
  virtual bool joins_as(const ShardExchange& other) const = 0;
};

}  // namespace lockstep
