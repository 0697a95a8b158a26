// What sums gradients over processes; see parallel/bucket_reducer.h.
#pragma once

#include <cstddef>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A sum over shards, some of them in other processes.
struct ReducedGradient {
  Tensor sum;
  // u8 [1], 0: no shard anywhere had a gradient, and the sum is zeros. Undefined: the host knows that there is one.
  Tensor present;
};

class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  // Parameter `index`'s sum since it was cleared, to be read on `device` and not to be changed.
  virtual ReducedGradient sum(std::size_t index, Device device) = 0;
  // Parameter `index` got a gradient of a shard of this process.
  virtual void added(std::size_t index) = 0;
  virtual void clear(std::size_t index) = 0;
  // Memory of parameter `index`'s shape from which it sums a shard's gradient without copying it; undefined: none. What
  // was in it is summed, or lost.
  virtual Tensor destination(std::size_t index, int shard, Device device) = 0;
};

}  // namespace lockstep
