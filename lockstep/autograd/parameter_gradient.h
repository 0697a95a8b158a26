// Internal: the gradient of one parameter: what backward passes summed (ShardTree), over all processes if there is a
// Reducer, and what the program made of the sum. A gradient passes through these, in this order:
//
//   Accumulator        adds what arrives at one place of a tensor during backward()
//   Gradient           all that arrives at the tensor; TotalGradient is its sum
//   ParameterGradient  adds that of a parameter by shard, over passes, in a ShardTree
//   Reducer            adds the trees of all processes, in buckets (BucketReducer)
//   ReducedGradient    the sum that an optimizer reads
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/autograd/passes.h"
#include "lockstep/autograd/reducer.h"
#include "lockstep/autograd/shard_tree.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

class ParameterGradient {
 public:
  // Adds one shard's gradient from one backward pass.
  void add(const BackwardPass& pass, int shard, const Array& gradient);
  // abandon() drops what a failed pass added; passed() forgets how to drop it.
  void abandon(const BackwardPass& pass);
  void passed(const BackwardPass& pass);

  // Returns memory for the next gradient to add, once for each shard and pass. Undefined if the gradient will be
  // changed before it is summed over processes, or if there are no other processes.
  Array destination(const BackwardPass& pass, int shard, Device device);

  // Returns the sum of all gradients, mapped by the hooks, plus what set() gave before them, on `device`; undefined if
  // there are none. Until more are added, later calls for the same device return the same tensor. If a hook throws,
  // nothing changes.
  ReducedGradient sum(Device device);
  // sum() for a host that must know whether there is a gradient: waits for the answer, and returns an undefined array
  // if no process had one. Reading does not change how passes without `sync` continue.
  Array peek(Device device);

  // The passes from which the gradients come.
  Passes passes() const;

  // Replaces the sum by a gradient in memory that nobody else writes: later passes add to it. `passes`: those that it
  // was computed from. With a reducer, all processes must give the same gradient. Throws where check_summed() does.
  void set(Array gradient, Passes passes = {});
  // Throws while gradients of passes without `sync` wait.
  void check_summed() const;
  // Adds a hook, which maps the sum of the passes once each time it has changed. Hooks run in the order of addition,
  // and must not change their argument. With hooks, the host waits as in peek(). Returns the hook's number.
  using Hook = std::function<Array(const Array& gradient)>;
  int add_hook(Hook hook);
  void remove_hook(int number);
  // Number of times that hooks were added or removed: a recorded step has the tasks of the hooks at that time.
  std::uint64_t hook_changes() const { return hook_changes_; }

  // An optimizer's next step will multiply this gradient by a scale that was computed from it, so add() throws until
  // the gradient is cleared or `scale` expires.
  void set_scale(const std::shared_ptr<const void>& scale) { scale_ = scale; }
  bool has_scale(const std::shared_ptr<const void>& scale) const { return scale_.lock() == scale; }
  bool has_scale() const { return !scale_.expired(); }

  // True if any shard of this process had a gradient that no reducer has taken yet, or set() gave one.
  bool present() const { return !sums_.empty() || given_.defined(); }
  void clear();
  // Notes that an optimizer's step uses this gradient: other gradients of its latest pass are old from then on.
  void mark_used() const {
    if (used_) *used_ = true;
  }
  // Whether a step has used other gradients of the latest pass, but not this one.
  bool old() const { return used_ && *used_; }
  // Clears the gradient after a step of this optimizer. `used`: the step used a gradient.
  void clear_behind(const std::shared_ptr<const void>& optimizer, bool used);
  // Whether another optimizer's step has used and cleared the gradient since it was last added to, set, or cleared.
  bool used_by_other(const std::shared_ptr<const void>& optimizer) const;
  // The number of the latest pass that added a gradient; 0 if the program has set a gradient since.
  std::uint64_t latest_pass() const { return latest_pass_; }
  // Drops the gradients of passes that have failed, once the program knows; see Passes.
  void drop_failed(bool read);
  // True if there is no gradient because it was dropped: since then, none was added or set, and clear() was not called.
  bool dropped() const { return dropped_; }
  // Whether gradients of passes without `sync` wait in this process.
  bool waits() const { return sums_.waits(); }

  // Sets the type, f32 or bf16. With bf16, every shard's gradient and every sum of two subtrees is rounded to bf16, so
  // that processes can exchange gradients in bf16. The total is f32 either way. Drops what has been added.
  void set_dtype(DType dtype);

  // From now on sum() covers all processes: this is the reducer's parameter `index`. Throws if there is a reducer
  // already.
  void set_reducer(std::shared_ptr<Reducer> reducer, std::size_t index);
  // Does nothing if there is another reducer.
  void remove_reducer(const Reducer& reducer);
  const std::shared_ptr<Reducer>& reducer() const { return reducer_; }
  // For the reducer: removes and returns the waiting sums of disjoint subtrees, by first shard.
  std::vector<std::pair<std::size_t, Array>> take_subtrees();
  // The sum of subtrees, each at the place of its first shard, as the ShardTree adds them. Undefined leaves are
  // missing.
  Array tree_sum(std::span<const Array> leaves, Device device) const;

 private:
  ReducedGradient sum_of_passes(Device device);
  ReducedGradient mapped_sum(Device device);

  bool synchronizes(const BackwardPass& pass) const { return pass.sync && (!reducer_ || reducer_->synchronizes()); }

  ShardTree sums_;
  // Advances with each change; `mapped_` is the sum at `mapped_version_`.
  std::uint64_t version_ = 0;
  Array given_;
  Passes of_given_;
  bool dropped_ = false;
  ReducedGradient mapped_;
  std::uint64_t mapped_version_ = 0;
  std::map<int, Hook> hooks_;
  int next_hook_ = 0;
  std::uint64_t hook_changes_ = 0;
  std::weak_ptr<const void> scale_;
  // The sums before the latest pass. They are restored if it fails.
  std::optional<ShardTree> before_;
  std::uint64_t latest_pass_ = 0;
  std::shared_ptr<bool> used_;  // of the latest pass, until clear(); see BackwardPass
  std::weak_ptr<const void> cleared_behind_;
  std::shared_ptr<FailureGroup> latest_failures_;
  // The sum that was read while passes without `sync` waited; the passes still wait.
  Array read_;
  std::map<int, std::uint64_t> destinations_;  // by shard: the latest pass that got memory
  std::shared_ptr<Reducer> reducer_;
  std::size_t index_ = 0;
};

}  // namespace lockstep
