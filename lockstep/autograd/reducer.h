// Internal: sums gradients over processes; parallel/bucket_reducer.h is one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/passes.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

// A sum over shards, some of them in other processes.
struct ReducedGradient {
  Array sum;
  // u8 [1]: 0 if no shard of any process had a gradient; the sum is then zeros. Undefined: there is a gradient.
  Array present;
};

class Reducer : public BackwardObserver {
 public:
  // False: gradients are accumulated shard by shard until this is true again; see BackwardOptions::sync.
  virtual bool synchronizes() const = 0;
  // Whether gradients of passes without `sync` wait to be summed.
  virtual bool waits() const = 0;
  // GradMeta::once_shard() for its parameters.
  virtual int once_shard(const BackwardPass& pass) const = 0;
  // Returns parameter `index`'s sum since it was cleared, on `device`. The caller must not change it.
  virtual ReducedGradient sum(std::size_t index, Device device) = 0;
  // Called when parameter `index` gets a gradient of one of this process's shards.
  virtual void added(std::size_t index) = 0;
  virtual void clear(std::size_t index) = 0;
  // The passes from which parameter `index`'s sum comes.
  virtual const Passes& passes(std::size_t index) const = 0;
  // Passes::drop_failed() for parameter `index`. Returns whether its sum was cleared.
  virtual bool drop_failed(std::size_t index, bool read) = 0;
  // Number of times that the reducer has summed; sums change only then.
  virtual std::uint64_t rounds() const = 0;
  // Returns memory of parameter `index`'s shape from which the reducer sums a shard's gradient without a copy;
  // undefined if there is none. Contents that are not summed yet are lost.
  virtual Array destination(std::size_t index, int shard, Device device) = 0;
};

}  // namespace lockstep
