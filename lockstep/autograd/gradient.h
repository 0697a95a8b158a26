// Internal: the gradient of one tensor while backward() collects it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Sums arriving gradients. The first is kept as it is, the second makes a new array, and later ones are added in place.
struct Accumulator {
  Array value;
  bool own = false;

  void add(const Array& g, int shard);
  bool defined() const { return value.defined(); }
};

// Contributions of several kinds, which differ in where they are and how often they count.
struct Gradient {
  // Contributions of shards. For a cut tensor they are its parts' gradients; for other tensors the gradient is their
  // sum over all shards of the job.
  struct Addend {
    int shard;
    Accumulator sum;
    // False for a shard without samples, which only keeps this process in step with the others.
    bool counts;
  };
  std::vector<Addend> addends;
  // The same on each device of a replicated tensor, in all processes. Counts once.
  std::vector<Accumulator> parts;
  // On one device, the same in all processes, as for a whole tensor outside per_shard(). Counts once.
  Accumulator single;
  // The seed of a root: `factor` in every element, times the device's loss scale if there is one. Counts once.
  struct Seed {
    double factor;
    std::span<const Array> scales;
    Tensor root;

    // Makes the array on `device`, times `weight`.
    Array make(Device device, double weight = 1) const;
  };
  std::optional<Seed> seed;

  bool defined() const { return !addends.empty() || !parts.empty() || single.defined() || seed; }
  void add_addend(int shard, const Array& g, bool counts);
  void add_part(const Array& g);
  void add_single(const Array& g);
  void add(Gradient other);
  // Whether any contribution counts once.
  bool has_once() const { return !parts.empty() || single.defined() || seed; }
  // Removes and returns the addend of shard `shard`.
  std::optional<Addend> take_addend(int shard);
  // The addend of shard `shard`, or of one device; undefined if there is none.
  Array addend(int shard) const;
  Array part(Device device) const;
  // Returns the sum of everything that counts once, on `device`; undefined if there is nothing.
  Array once(Device device) const;
};

// Exchanges the leaves of the shards' tree, by shard: each process gets the leaves of all processes. Leaves of missing
// shards become undefined. Every process must call it.
void exchange_leaves(const Placement& at, std::vector<Array>& leaves, std::string_view what);

// The gradient of a cut tensor of `shape` and `dtype`, by slot: zeros for shards that the roots do not depend on.
std::vector<Array> cut_parts(const Gradient& gradient, const Placement& at, const Cut& cut, Shape shape, DType dtype);

// The gradient of a tensor that is not cut, as one array: the sum over the shards of all processes, plus the
// contributions that count once. Undefined if there is none. `at`: the batch of the addends. Every process must call
// it.
class TotalGradient {
 public:
  TotalGradient(const Gradient& gradient, const std::shared_ptr<const Placement>& at);
  bool defined() const { return seed_ != nullptr || !arrays_.empty(); }
  // Returns the gradient on `device`, times `weight`, with the same bits on every device.
  Array on(Device device, double weight = 1) const;

 private:
  const Gradient::Seed* seed_ = nullptr;  // set only if the seed is the whole gradient
  mutable std::vector<Array> arrays_;     // one for each device that has it already
};

}  // namespace lockstep
