// Internal: joins what a module computes for single shards.
#pragma once

#include <any>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/autograd/placement.h"

namespace lockstep {

// Lets a module act once for all shards of a batch although per_shard() calls it for each. Batch norm updates its
// running statistics this way.
class ShardCollector {
 public:
  // Keeps a value that the module `owner` computed for one shard. The k-th calls for all shards belong together. When
  // all have finished, `finish` gets their values by shard, empty for shards of other processes.
  void add(const void* owner, int shard, std::any value, std::function<void(std::vector<std::any>)> finish);
  void finish(const Placement& at);

 private:
  struct Entry {
    const void* owner;
    std::vector<std::pair<int, std::any>> values;
    std::function<void(std::vector<std::any>)> finish;
  };
  std::vector<Entry> entries_;
};

}  // namespace lockstep
