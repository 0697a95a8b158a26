#include "lockstep/autograd/gradient_tree.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/tree.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/step_recorder.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// Waits if only the devices know whether there is a gradient.
Array if_present(const ReducedGradient& gradient) {
  const bool missing =
      gradient.present.defined() && ops::host_readable(gradient.present).to_vector<std::uint8_t>().at(0) == 0;
  return missing ? Array() : gradient.sum;
}

}  // namespace

bool GradientTree::covers(std::size_t shard) const {
  return std::ranges::any_of(sums_.subtrees,
                             [&](const Subtree& s) { return s.first <= shard && shard < s.first + s.size; });
}

void GradientTree::insert(Subtree subtree) {
  const auto after = std::ranges::upper_bound(sums_.subtrees, subtree.first, {}, &Subtree::first);
  sums_.subtrees.insert(after, std::move(subtree));
}

void GradientTree::set_dtype(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "gradient: rounded to {}, expected f32 or bf16", name(dtype));
  clear();
  dtype_ = dtype;
}

Array GradientTree::rounded(const Array& gradient) const {
  return dtype_ == DType::bf16 ? ops::to_dtype(gradient, DType::bf16) : gradient;
}

// Kernels sum a whole tree in f32; a sum of two bf16 tensors is rounded.
Array GradientTree::tree_sum(std::span<const Array> leaves, Device device) const {
  if (dtype_ != DType::bf16) return ops::tree_sum(leaves, device);
  const auto leaf = [&](std::size_t i) {
    return leaves[i].defined() ? std::optional(ops::to_device(leaves[i], device, {.non_blocking = true}))
                               : std::nullopt;
  };
  const auto join = [](const Array& a, const Array& b) { return std::optional(ops::binary(BinaryOp::add, a, b)); };
  return tree_fold(0, leaves.size(), leaf, join).value_or(Array());
}

void GradientTree::add(const BackwardPass& pass, int shard, const Array& gradient) {
  auto first = static_cast<std::size_t>(shard < 0 ? 0 : shard);
  if (StepRecorder* recorder = StepRecorder::current()) {
    recorder->begin_gradient(this, !present());
  }
  read_ = {};
  ++version_;
  if (latest_pass_ != pass.number) {
    drop_failed();
    for (Passes* passes : {&sums_.of_total, &sums_.of_unsynchronized}) passes->forget_good(*gradient.storage()->engine);
    latest_pass_ = pass.number;
    latest_failures_ = pass.failures;
    before_ = sums_;
  }
  Array sum = gradient;
  if (reducer_) reducer_->added(index_);
  if (auto before = sums_.unsynchronized.find(first); before != sums_.unsynchronized.end()) {
    ops::ShardScope scope(shard);
    sum = ops::binary(BinaryOp::add, before->second, sum);
    sums_.unsynchronized.erase(before);
    if (synchronizes(pass)) sums_.of_subtrees.add(sums_.of_unsynchronized);
  }
  if (!synchronizes(pass)) {
    sums_.unsynchronized[first] = sum;
    sums_.unsynchronized_round = pass.number;
    sums_.of_unsynchronized.add(pass.failures);
    return;
  }
  if (covers(first) || sums_.round != pass.number) finish_round(gradient.device());
  sums_.round = pass.number;
  sums_.of_subtrees.add(pass.failures);
  {
    ops::ShardScope scope(shard);
    sum = rounded(sum);
  }
  std::size_t size = 1;
  while (true) {
    const auto sibling = std::ranges::find(sums_.subtrees, first ^ size, &Subtree::first);
    if (sibling == sums_.subtrees.end() || sibling->size != size || sibling->sum.device() != sum.device()) break;
    ops::ShardScope scope(shard);
    Array pair[] = {std::move(sum), std::move(sibling->sum)};
    if ((first & size) != 0) std::swap(pair[0], pair[1]);
    sum = tree_sum(pair, gradient.device());
    sums_.subtrees.erase(sibling);
    first &= ~size;
    size *= 2;
  }
  insert({first, size, std::move(sum)});
}

void GradientTree::abandon(const BackwardPass& pass) {
  if (latest_pass_ != pass.number || !before_) return;
  sums_ = std::move(*before_);
  before_.reset();
  ++version_;
}

void GradientTree::passed(const BackwardPass& pass) {
  if (latest_pass_ == pass.number) before_.reset();
}

Passes GradientTree::passes() const {
  Passes all = sums_.of_total;
  for (const Passes* more : {&sums_.of_subtrees, &sums_.of_unsynchronized, &of_given_}) all.add(*more);
  if (reducer_) all.add(reducer_->passes(index_));
  return all;
}

// Drops the gradients of passes that have failed, once the program knows.
void GradientTree::drop_failed() {
  bool dropped = reducer_ && reducer_->drop_failed(index_);
  if (const Array some = any(); some.defined()) {
    Engine& engine = *some.storage()->engine;
    std::vector<Array> subtrees, unsynchronized;
    for (const Subtree& subtree : sums_.subtrees) subtrees.push_back(subtree.sum);
    for (const auto& [shard, sum] : sums_.unsynchronized) unsynchronized.push_back(sum);
    const auto drop = [&](Passes& passes, std::span<const Array> sums, auto& what) {
      if (!passes.drop_failed(engine, sums)) return;
      what = {};
      dropped = true;
    };
    drop(sums_.of_subtrees, subtrees, sums_.subtrees);
    drop(sums_.of_unsynchronized, unsynchronized, sums_.unsynchronized);
    drop(sums_.of_total, std::span(&sums_.total, 1), sums_.total);
    drop(of_given_, std::span(&given_, 1), given_);
  }
  if (!dropped) return;
  ++version_;
  read_ = {};
}

Array GradientTree::any() const {
  if (sums_.total.defined()) return sums_.total;
  if (!sums_.subtrees.empty()) return sums_.subtrees[0].sum;
  if (!sums_.unsynchronized.empty()) return sums_.unsynchronized.begin()->second;
  return given_;
}

Array GradientTree::destination(const BackwardPass& pass, int shard, Device device) {
  if (!reducer_ || !synchronizes(pass) || !sums_.unsynchronized.empty()) return {};
  // A parameter that is used twice: the second gradient is added to the first one.
  if (std::exchange(destinations_[shard], pass.number) == pass.number) return {};
  return reducer_->destination(index_, shard, device);
}

// Shards that had no part in the micro-batch after them join its tree. Without one they are a round of their own.
void GradientTree::merge_unsynchronized(Device device) {
  if (sums_.unsynchronized.empty()) return;
  bool own_round = sums_.unsynchronized_round > sums_.round ||
                   std::ranges::any_of(sums_.unsynchronized, [&](const auto& leaf) { return covers(leaf.first); });
  if (own_round) finish_round(device);
  for (auto& [shard, sum] : sums_.unsynchronized) insert({shard, 1, rounded(sum)});
  sums_.unsynchronized.clear();
  sums_.of_subtrees.add(std::exchange(sums_.of_unsynchronized, {}));
}

void GradientTree::finish_round(Device device) {
  if (sums_.subtrees.empty()) return;
  // A subtree stands at its first shard's place; the places that it covers are missing leaves, which pass their
  // siblings on unchanged. So the tree over all places adds what is left to add, in the right order.
  Array round = sums_.subtrees[0].sum;
  if (sums_.subtrees.size() > 1 || round.device() != device) {
    std::vector<Array> leaves(sums_.subtrees.back().first + 1);
    for (const Subtree& subtree : sums_.subtrees) leaves[subtree.first] = ops::readable_from(subtree.sum, device);
    round = tree_sum(leaves, device);
  }
  if (dtype_ == DType::bf16) round = ops::to_dtype(round, DType::f32);
  if (sums_.total.defined()) {
    sums_.total = ops::binary(BinaryOp::add, ops::to_device(sums_.total, device, {.non_blocking = true}), round);
  } else {
    sums_.total = round;
  }
  sums_.subtrees.clear();
  sums_.of_total.add(std::exchange(sums_.of_subtrees, {}));
}

ReducedGradient GradientTree::sum_of_passes(Device device) {
  if (reducer_) return reducer_->sum(index_, device);
  if (sums_.unsynchronized.empty()) {
    finish_round(device);
    if (sums_.total.defined()) sums_.total = ops::to_device(sums_.total, device, {.non_blocking = true});
    return {sums_.total, {}};
  }
  // Merged with what waits, later passes would begin another round, so a program that looks would change the bits.
  if (!read_.defined()) {
    const Sums kept = sums_;
    merge_unsynchronized(device);
    finish_round(device);
    read_ = std::exchange(sums_, kept).total;
  }
  read_ = ops::to_device(read_, device, {.non_blocking = true});
  return {read_, {}};
}

ReducedGradient GradientTree::mapped_sum(Device device) {
  ReducedGradient found = sum_of_passes(device);
  if (!hooks_.empty()) {
    found = {if_present(found), {}};
    for (const auto& [number, hook] : hooks_) {
      if (found.sum.defined()) found.sum = hook(found.sum);
    }
  }
  if (!given_.defined()) return found;
  const Array given = ops::to_device(given_, device, {.non_blocking = true});
  if (!found.sum.defined()) return {given, {}};
  const Array both = ops::binary(BinaryOp::add, given, ops::to_device(found.sum, device, {.non_blocking = true}));
  if (!found.present.defined()) return {both, {}};
  // A sum that is not there has zeros, but adding +0 would change -0.
  return {ops::where(ops::to_device(found.present, device, {.non_blocking = true}), both, given), {}};
}

ReducedGradient GradientTree::sum(Device device) {
  drop_failed();
  // Where it adds up gradients of several passes, each reports its own failure.
  const FailureScope scope(latest_failures_);
  if (hooks_.empty() && !given_.defined()) return sum_of_passes(device);
  const auto version = [&] { return version_ + (reducer_ ? reducer_->rounds() : 0); };
  if (!mapped_.sum.defined() || mapped_version_ != version()) {
    mapped_ = mapped_sum(device);
    mapped_version_ = version();
  }
  return {ops::readable_from(mapped_.sum, device), ops::readable_from(mapped_.present, device)};
}

Array GradientTree::peek(Device device) { return if_present(sum(device)); }

void GradientTree::check_summed() const {
  check(sums_.unsynchronized.empty() && (!reducer_ || !reducer_->waits()),
        "gradient: it is not summed yet: expected a backward() with sync, and no no_sync() guard, before it is set or "
        "mapped");
}

void GradientTree::set(Array gradient, Passes passes) {
  check_summed();
  clear();
  given_ = std::move(gradient);
  of_given_ = std::move(passes);
  if (StepRecorder* recorder = StepRecorder::current()) recorder->begin_gradient(this, true);
}

int GradientTree::add_hook(Hook hook) {
  ++version_;
  hooks_.emplace(next_hook_, std::move(hook));
  return next_hook_++;
}

void GradientTree::remove_hook(int number) {
  ++version_;
  hooks_.erase(number);
}

void GradientTree::clear() {
  if (StepRecorder* recorder = StepRecorder::current()) recorder->end_gradient(this);
  ++version_;
  given_ = {};
  of_given_ = {};
  mapped_ = {};
  sums_ = {};
  read_ = {};
  before_.reset();
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

std::vector<std::pair<std::size_t, Array>> GradientTree::take_subtrees() {
  if (!sums_.unsynchronized.empty()) merge_unsynchronized(sums_.unsynchronized.begin()->second.device());
  std::vector<std::pair<std::size_t, Array>> taken;
  for (Subtree& subtree : sums_.subtrees) taken.emplace_back(subtree.first, std::move(subtree.sum));
  sums_.subtrees.clear();
  sums_.of_subtrees = {};
  return taken;
}

}  // namespace lockstep
