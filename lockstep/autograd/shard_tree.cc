#include "lockstep/autograd/shard_tree.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/tree.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {

bool ShardTree::covers(std::size_t shard) const {
  return std::ranges::any_of(subtrees_, [&](const Subtree& s) { return s.first <= shard && shard < s.first + s.size; });
}

void ShardTree::insert(Subtree subtree) {
  const auto after = std::ranges::upper_bound(subtrees_, subtree.first, {}, &Subtree::first);
  subtrees_.insert(after, std::move(subtree));
}

Array ShardTree::rounded(const Array& gradient) const {
  return dtype_ == DType::bf16 ? ops::to_dtype(gradient, DType::bf16) : gradient;
}

// For bf16, adds pairs, because each sum must be rounded; a kernel sums a whole tree in f32.
Array ShardTree::tree_sum(std::span<const Array> leaves, Device device) const {
  if (dtype_ != DType::bf16) return ops::tree_sum(leaves, device);
  const auto leaf = [&](std::size_t i) {
    return leaves[i].defined() ? std::optional(ops::to_device(leaves[i], device, {.non_blocking = true}))
                               : std::nullopt;
  };
  const auto join = [](const Array& a, const Array& b) { return std::optional(ops::binary(BinaryOp::add, a, b)); };
  return tree_fold(0, leaves.size(), leaf, join).value_or(Array());
}

void ShardTree::add(const BackwardPass& pass, bool sync, int shard, const Array& gradient) {
  auto first = static_cast<std::size_t>(shard < 0 ? 0 : shard);
  Array sum = gradient;
  Passes passes;
  if (auto before = unsynchronized_.find(first); before != unsynchronized_.end()) {
    ops::ShardScope scope(shard);
    sum = ops::binary(BinaryOp::add, before->second, sum);
    unsynchronized_.erase(before);
    passes = of_unsynchronized_;
  }
  passes.add(pass.failures);
  if (!sync) {
    unsynchronized_[first] = sum;
    unsynchronized_round_ = pass.number;
    of_unsynchronized_.add(passes);
    return;
  }
  if (unsynchronized_.empty()) of_unsynchronized_ = {};
  if (covers(first) || round_ != pass.number) finish_round(gradient.device());
  round_ = pass.number;
  of_subtrees_.add(passes);
  {
    ops::ShardScope scope(shard);
    sum = rounded(sum);
  }
  std::size_t size = 1;
  while (true) {
    const auto sibling = std::ranges::find(subtrees_, first ^ size, &Subtree::first);
    if (sibling == subtrees_.end() || sibling->size != size || sibling->sum.device() != sum.device()) break;
    ops::ShardScope scope(shard);
    Array pair[] = {std::move(sum), std::move(sibling->sum)};
    if ((first & size) != 0) std::swap(pair[0], pair[1]);
    sum = tree_sum(pair, gradient.device());
    subtrees_.erase(sibling);
    first &= ~size;
    size *= 2;
  }
  insert({first, size, std::move(sum)});
}

// Waiting sums of shards that have no part in the next synchronized pass join its tree, or are a round of their own.
void ShardTree::merge_unsynchronized(Device device) {
  if (unsynchronized_.empty()) return;
  bool own_round = unsynchronized_round_ > round_ ||
                   std::ranges::any_of(unsynchronized_, [&](const auto& leaf) { return covers(leaf.first); });
  if (own_round) finish_round(device);
  for (auto& [shard, sum] : unsynchronized_) insert({shard, 1, rounded(sum)});
  unsynchronized_.clear();
  of_subtrees_.add(std::exchange(of_unsynchronized_, {}));
}

void ShardTree::finish_round(Device device) {
  if (subtrees_.empty()) return;
  // A subtree stands at its first shard's place; the places that it covers are missing leaves, which pass their
  // siblings on unchanged. So the tree over all places adds what is left to add, in the right order.
  Array round = subtrees_[0].sum;
  if (subtrees_.size() > 1 || round.device() != device) {
    std::vector<Array> leaves(subtrees_.back().first + 1);
    for (const Subtree& subtree : subtrees_) leaves[subtree.first] = ops::readable_from(subtree.sum, device);
    round = tree_sum(leaves, device);
  }
  if (dtype_ == DType::bf16) round = ops::to_dtype(round, DType::f32);
  if (total_.defined()) {
    total_ = ops::binary(BinaryOp::add, ops::to_device(total_, device, {.non_blocking = true}), round);
  } else {
    total_ = round;
  }
  subtrees_.clear();
  of_total_.add(std::exchange(of_subtrees_, {}));
}

Array ShardTree::sum(Device device) {
  merge_unsynchronized(device);
  finish_round(device);
  if (total_.defined()) total_ = ops::to_device(total_, device, {.non_blocking = true});
  return total_;
}

Array ShardTree::any() const {
  if (total_.defined()) return total_;
  if (!subtrees_.empty()) return subtrees_[0].sum;
  return unsynchronized_.empty() ? Array() : unsynchronized_.begin()->second;
}

Passes ShardTree::passes() const {
  Passes all = of_total_;
  all.add(of_subtrees_);
  all.add(of_unsynchronized_);
  return all;
}

bool ShardTree::drop_failed(bool read) {
  const Array some = any();
  if (!some.defined()) return false;
  std::vector<Array> subtrees, unsynchronized;
  for (const Subtree& subtree : subtrees_) subtrees.push_back(subtree.sum);
  for (const auto& [shard, sum] : unsynchronized_) unsynchronized.push_back(sum);
  bool dropped = false;
  const auto drop = [&](Passes& passes, std::span<const Array> sums, auto& what) {
    if (!passes.drop_failed(*some.storage()->engine, sums, read)) return;
    what = {};
    dropped = true;
  };
  drop(of_subtrees_, subtrees, subtrees_);
  drop(of_unsynchronized_, unsynchronized, unsynchronized_);
  drop(of_total_, std::span(&total_, 1), total_);
  return dropped;
}

void ShardTree::forget_good_passes(Engine& engine) {
  of_total_.forget_good(engine);
  of_unsynchronized_.forget_good(engine);
}

std::vector<std::pair<std::size_t, Array>> ShardTree::take_subtrees() {
  if (!unsynchronized_.empty()) merge_unsynchronized(unsynchronized_.begin()->second.device());
  std::vector<std::pair<std::size_t, Array>> taken;
  for (Subtree& subtree : subtrees_) taken.emplace_back(subtree.first, std::move(subtree.sum));
  subtrees_.clear();
  of_subtrees_ = {};
  return taken;
}

}  // namespace lockstep
