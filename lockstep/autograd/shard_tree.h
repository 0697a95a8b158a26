// Internal: the sum of a parameter's gradients over shards and backward passes. Leaves are shards. They are summed in
// the tree of base/tree.h, so the bits do not depend on which device has which shard. Two complete sibling subtrees on
// one device are merged at once, like carries in a binary counter, so at most log2(shards) + 1 arrays wait on a device.
//
// Each pass (accumulation over micro-batches) is a round: rounds are added one after the other, each in its own tree.
// Passes without `sync` are added up by shard instead, and join the round of the first pass with `sync` after them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/passes.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

// A copy shares the arrays, which nothing changes in place.
class ShardTree {
 public:
  // `dtype`: see ParameterGradient::set_dtype().
  explicit ShardTree(DType dtype = DType::f32) : dtype_(dtype) {}
  DType dtype() const { return dtype_; }

  void add(const BackwardPass& pass, bool sync, int shard, const Array& gradient);
  // Returns the sum of everything on `device`; undefined if there is nothing. What is added later begins a new round.
  Array sum(Device device);

  bool empty() const { return !any().defined(); }
  // One of the sums; undefined if there are none.
  Array any() const;
  // Whether gradients of passes without `sync` wait.
  bool waits() const { return !unsynchronized_.empty(); }
  Passes passes() const;
  // See Passes. Returns whether anything was dropped.
  bool drop_failed(bool read);
  void forget_good_passes(Engine& engine);

  // Removes the waiting sums of disjoint subtrees, by first shard.
  std::vector<std::pair<std::size_t, Array>> take_subtrees();
  // The sum of subtrees, each at the place of its first shard, as this tree adds them. Undefined leaves are missing.
  Array tree_sum(std::span<const Array> leaves, Device device) const;

 private:
  struct Subtree {
    std::size_t first, size;  // shards
    Array sum;
  };

  bool covers(std::size_t shard) const;
  void insert(Subtree subtree);
  Array rounded(const Array& gradient) const;
  void merge_unsynchronized(Device device);
  void finish_round(Device device);

  DType dtype_;
  // Disjoint subtrees of the current round, by first shard, and the round's latest pass.
  std::vector<Subtree> subtrees_;
  Passes of_subtrees_;
  std::uint64_t round_ = 0;
  // For passes without `sync`: their sums by shard, the passes, and the number of the latest one.
  std::map<std::size_t, Array> unsynchronized_;
  Passes of_unsynchronized_;
  std::uint64_t unsynchronized_round_ = 0;
  // Sum of the earlier rounds.
  Array total_;
  Passes of_total_;
};

}  // namespace lockstep
