#include "lockstep/nn/gradient_tree.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/autograd/node.h"
#include "lockstep/base/tree.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {
namespace {

thread_local bool no_sync = false;
thread_local const GradientReducer* active_reducer = nullptr;

}  // namespace

NoSyncGuard::NoSyncGuard() : previous_(std::exchange(no_sync, true)) {}
NoSyncGuard::~NoSyncGuard() { no_sync = previous_; }
bool NoSyncGuard::active() { return no_sync; }

ReducerScope::ReducerScope(const GradientReducer& reducer) : previous_(std::exchange(active_reducer, &reducer)) {}
ReducerScope::~ReducerScope() { active_reducer = previous_; }
const GradientReducer* ReducerScope::active() { return active_reducer; }

bool GradientTree::covers(std::size_t shard) const {
  auto it = subtrees_.upper_bound(shard);
  if (it == subtrees_.begin()) return false;
  --it;
  return shard < it->first + it->second.first;
}

void GradientTree::set_dtype(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "gradient: rounded to {}, expected f32 or bf16", name(dtype));
  clear();
  dtype_ = dtype;
}

Tensor GradientTree::rounded(const Tensor& gradient) const {
  return dtype_ == DType::bf16 ? gradient.to(DType::bf16) : gradient;
}

// Kernels sum a whole tree in f32; a sum of two bf16 tensors is rounded.
Tensor GradientTree::tree_sum(const std::vector<Tensor>& leaves, Device device) const {
  if (dtype_ != DType::bf16) return ops::tree_sum(leaves, device);
  const auto leaf = [&](std::size_t i) {
    return leaves[i].defined() ? std::optional(leaves[i].to(device, {.non_blocking = true})) : std::nullopt;
  };
  const auto join = [](const Tensor& a, const Tensor& b) { return std::optional(ops::binary(BinaryOp::add, a, b)); };
  return tree_fold(0, leaves.size(), leaf, join).value_or(Tensor());
}

void GradientTree::add(int shard, const Tensor& gradient) {
  auto first = static_cast<std::size_t>(shard < 0 ? 0 : shard);
  if (StepRecorder* recorder = StepRecorder::current()) {
    recorder->begin_gradient(this, subtrees_.empty() && unsynchronized_.empty() && !total_.defined());
  }
  Tensor sum = gradient.detach();
  if (reducer_) reducer_->added(index_);
  if (auto before = unsynchronized_.find(first); before != unsynchronized_.end()) {
    ops::ShardScope scope(shard);
    sum = ops::binary(BinaryOp::add, before->second, sum);
    unsynchronized_.erase(before);
  }
  if (no_sync) {
    unsynchronized_[first] = sum;
    unsynchronized_round_ = backward_number();
    return;
  }
  if (covers(first) || round_ != backward_number()) finish_round(gradient.device());
  round_ = backward_number();
  {
    ops::ShardScope scope(shard);
    sum = rounded(sum);
  }
  std::size_t size = 1;
  while (true) {
    auto sibling = subtrees_.find(first ^ size);
    if (sibling == subtrees_.end() || sibling->second.first != size) break;
    const Tensor& other = sibling->second.second;
    if (other.device() != sum.device()) break;
    ops::ShardScope scope(shard);
    bool left = (first & size) == 0;
    sum = tree_sum({left ? sum : other, left ? other : sum}, sum.device());
    subtrees_.erase(sibling);
    first &= ~size;
    size *= 2;
  }
  subtrees_[first] = {size, sum};
}

Tensor GradientTree::destination(int shard, Device device) {
  if (!reducer_ || no_sync || !unsynchronized_.empty()) return {};
  // A parameter that is used twice: the second gradient is added to the first one.
  if (std::exchange(destinations_[shard], backward_number()) == backward_number()) return {};
  return reducer_->destination(index_, shard, device);
}

// Shards that had no part in the micro-batch after them join its tree. Without one they are a round of their own.
void GradientTree::merge_unsynchronized(Device device) {
  if (unsynchronized_.empty()) return;
  bool own_round = unsynchronized_round_ > round_ ||
                   std::ranges::any_of(unsynchronized_, [&](const auto& leaf) { return covers(leaf.first); });
  if (own_round) finish_round(device);
  for (auto& [shard, sum] : unsynchronized_) subtrees_[shard] = {1, rounded(sum)};
  unsynchronized_.clear();
}

void GradientTree::finish_round(Device device) {
  if (subtrees_.empty()) return;
  // A subtree stands at its first shard's place; the places that it covers are missing leaves, which pass their
  // siblings on unchanged. So the tree over all places adds what is left to add, in the right order.
  std::vector<Tensor> leaves(subtrees_.rbegin()->first + 1);
  for (auto& [first, subtree] : subtrees_) {
    leaves[first] = ops::readable_from(subtree.second, device);
  }
  bool single = subtrees_.size() == 1 && subtrees_.begin()->second.second.device() == device;
  Tensor round = single ? subtrees_.begin()->second.second : tree_sum(leaves, device);
  if (dtype_ == DType::bf16) round = round.to(DType::f32);
  if (total_.defined()) {
    total_ = ops::binary(BinaryOp::add, total_.to(device, {.non_blocking = true}), round);
  } else {
    total_ = round;
  }
  subtrees_.clear();
}

ReducedGradient GradientTree::sum(Device device) {
  if (reducer_) return reducer_->sum(index_, device);
  merge_unsynchronized(device);
  finish_round(device);
  if (total_.defined()) total_ = total_.to(device, {.non_blocking = true});
  return {total_, {}};
}

void GradientTree::clear() {
  if (StepRecorder* recorder = StepRecorder::current()) recorder->end_gradient(this);
  subtrees_.clear();
  unsynchronized_.clear();
  total_ = {};
  if (reducer_) reducer_->clear(index_);
}

void GradientTree::set_reducer(std::shared_ptr<GradientReducer> reducer, std::size_t index) {
  check(!reducer_, "gradient: there is a reducer already");
  clear();
  reducer_ = std::move(reducer);
  index_ = index;
}

void GradientTree::remove_reducer(const GradientReducer& reducer) {
  if (reducer_.get() != &reducer) return;
  clear();
  reducer_ = nullptr;
}

std::vector<std::pair<std::size_t, Tensor>> GradientTree::take_subtrees() {
  if (!unsynchronized_.empty()) merge_unsynchronized(unsynchronized_.begin()->second.device());
  std::vector<std::pair<std::size_t, Tensor>> taken;
  for (auto& [first, subtree] : subtrees_) taken.emplace_back(first, std::move(subtree.second));
  subtrees_.clear();
  return taken;
}

}  // namespace lockstep
