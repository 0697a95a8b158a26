// The gradient of one parameter, from all shards. Leaves are shards; they are summed in the tree of base/tree.h, so
// the bits do not depend on which device has which shard. Two complete sibling subtrees on one device are merged at
// once, as a binary counter carries: at most log2(shards) + 1 tensors wait on a device.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

class GradientTree {
 public:
  // One shard's gradient from one backward(). A shard that is there already begins the next round (accumulation over
  // micro-batches): rounds are added one after the other, each in the shards' tree.
  void add(int shard, const Tensor& gradient);

  // The sum of everything, on `device`; undefined if nothing came. Until more is added, later calls for the same
  // device return the same tensor.
  Tensor sum(Device device);

  // True if any shard had a gradient: tells unused parameters.
  bool present() const { return total_.defined() || !subtrees_.empty(); }
  void clear();

 private:
  bool covers(std::size_t shard) const;
  void finish_round(Device device);

  // Disjoint subtrees of the current round: (first shard, number of shards) and their sum.
  std::map<std::size_t, std::pair<std::size_t, Tensor>> subtrees_;
  Tensor total_;  // of the rounds before
};

}  // namespace lockstep
