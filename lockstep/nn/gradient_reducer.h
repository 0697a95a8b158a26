// Sums gradients over processes; parallel/bucket_reducer.h is one.
#pragma once

#include <cstddef>

#include "lockstep/autograd/node.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

// A sum over shards, some of them in other processes.
struct ReducedGradient {
  Array sum;
  // u8 [1], 0: no shard anywhere had a gradient, and the sum is zeros. Undefined: the host knows that there is one.
  Array present;
};

class GradientReducer : public BackwardObserver {
 public:
  // False: gradients are added up shard by shard until it is true again; see BackwardOptions::sync.
  virtual bool synchronizes() const = 0;
  // Whether this process computes shard `shard`.
  virtual bool has_shard(int shard) const = 0;
  // Parameter `index`'s sum since it was cleared, to be read on `device` and not to be changed.
  virtual ReducedGradient sum(std::size_t index, Device device) = 0;
  // Parameter `index` got a gradient of a shard of this process.
  virtual void added(std::size_t index) = 0;
  virtual void clear(std::size_t index) = 0;
  // Memory of parameter `index`'s shape from which it sums a shard's gradient without copying it; undefined: none. What
  // was in it is summed, or lost.
  virtual Array destination(std::size_t index, int shard, Device device) = 0;
};

}  // namespace lockstep
