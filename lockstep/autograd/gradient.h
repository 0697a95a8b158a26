// The gradient of one tensor while backward() collects it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// a + b, of gradients for one tensor. In host memory, where no device computes, this waits for both.
Array add_gradients(const Array& a, const Array& b);

// Sums what arrives: the first one is kept as it is, the second makes a new array, the others are added in place.
struct GradientSum {
  Array value;
  bool own = false;

  void add(const Array& g, int shard);
  bool defined() const { return value.defined(); }
};

// Three kinds of contributions, which differ in who has them and how often they count.
struct Gradient {
  // From shards: those of a cut tensor are its parts' gradients; for other tensors the gradient is their sum over all shards
  // of the job.
  struct Addend {
    int shard;
    GradientSum sum;
    // False: of a shard without samples, which only keeps this process in step with the others.
    bool counts;
  };
  std::vector<Addend> addends;
  // On each device of a replicated tensor the same, in all processes: counts once.
  std::vector<GradientSum> parts;
  // On one device, in all processes the same: counts once. That of a whole tensor is always such.
  GradientSum single;
  // A root's own: `factor`, times the device's scale if there are scales, in every element. Counts once.
  struct Seed {
    double factor;
    std::span<const Array> scales;
    Tensor root;

    // In memory on `device`, times `weight`.
    Array make(Device device, double weight = 1) const;
  };
  std::optional<Seed> seed;

  bool defined() const { return !addends.empty() || !parts.empty() || single.defined() || seed; }
  void add_addend(int shard, const Array& g, bool counts);
  void add_part(const Array& g);
  void add_single(const Array& g);
  void add(Gradient other);
  // Whether there is anything that counts once.
  bool has_once() const { return !parts.empty() || single.defined() || seed; }
  // The addend of shard `shard`, which is then gone from here.
  Gradient take_addend(int shard);
  // That of shard `shard`, or of one device; undefined if there is none.
  Array addend(int shard) const;
  Array part(Device device) const;
  // Returns the sum of everything that counts once, on `device`; undefined if there is nothing.
  Array once(Device device) const;
};

// Leaves of the shards' tree, by shard: this process's become those of all processes. Missing shards' become undefined. Every
// process has to call it.
void exchange_leaves(const Placement& at, std::vector<Array>& leaves, std::string_view what);

// The gradient of a cut tensor of `shape` and `dtype`, by slot: zeros for shards that the roots do not depend on.
std::vector<Array> cut_parts(const Gradient& gradient, const Placement& at, const Cut& cut, Shape shape, DType dtype);

// The gradient of a tensor that is not cut, as one array: the sum over the shards of all processes and what counts once.
// Undefined if there is none. `at`: the batch that the addends come from. Every process has to call it.
class TotalGradient {
 public:
  TotalGradient(const Gradient& gradient, const std::shared_ptr<const Placement>& at);
  bool defined() const { return seed_ != nullptr || !arrays_.empty(); }
  // Times `weight`, with the same bits on every device.
  Array on(Device device, double weight = 1) const;

 private:
  const Gradient::Seed* seed_ = nullptr;  // if there is nothing else
  mutable std::vector<Array> arrays_;     // one for each device that has it by now
};

}  // namespace lockstep
