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
    drop_failed(*gradient.storage()->engine);
    latest_pass_ = pass.number;
    before_ = sums_;
    forget_good_losses(*gradient.storage()->engine);
    for (const Resource& root : pass.roots) sums_.losses.emplace_back(pass.number, root);
  }
  Array sum = gradient;
  if (reducer_) reducer_->added(index_);
  if (auto before = sums_.unsynchronized.find(first); before != sums_.unsynchronized.end()) {
    ops::ShardScope scope(shard);
    sum = ops::binary(BinaryOp::add, before->second, sum);
    sums_.unsynchronized.erase(before);
  }
  if (!synchronizes(pass)) {
    sums_.unsynchronized[first] = sum;
    sums_.unsynchronized_round = pass.number;
    return;
  }
  if (covers(first) || sums_.round != pass.number) finish_round(gradient.device());
  sums_.round = pass.number;
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

void GradientTree::list_losses(std::vector<Resource>& all) const {
  for (const auto& [pass, loss] : sums_.losses) {
    if (std::ranges::find(all, loss) == all.end()) all.push_back(loss);
  }
  for (const Resource& loss : given_losses_) {
    if (std::ranges::find(all, loss) == all.end()) all.push_back(loss);
  }
}

// Passes add up for as long as a program runs if it trains this parameter with no optimizer, and does not freeze it.
void GradientTree::forget_good_losses(Engine& engine) {
  constexpr std::size_t kMany = 64;
  // The repetitions of a recorded step compute its losses anew.
  if (sums_.losses.size() < std::max(many_losses_, kMany) || StepRecorder::current()) return;
  std::erase_if(sums_.losses,
                [&](const auto& loss) { return engine.unused(loss.second) && engine.failure(loss.second) == nullptr; });
  many_losses_ = 2 * sums_.losses.size();
}

// Drops the gradients of a batch that has failed, once the program knows of the failure. Until then they have to stay,
// so that the step fails.
void GradientTree::drop_failed(Engine& engine) {
  const std::uint64_t reports = engine.reports();
  if (std::exchange(reports_, reports) == reports) return;
  const auto failed = [&](const Resource& data) {
    engine.wait_unused(data);
    return engine.failure(data) != nullptr;
  };
  const auto is_bad = [&](const Array& sum) { return sum.defined() && failed(sum.resource()); };
  const auto of_round = [&](const auto& loss) { return loss.first == sums_.round; };
  const auto bad_loss = [&](bool round) {
    return std::ranges::any_of(sums_.losses,
                               [&](const auto& loss) { return of_round(loss) == round && failed(loss.second); });
  };
  ++version_;
  if (std::ranges::any_of(sums_.subtrees, is_bad, &Subtree::sum) || bad_loss(true)) {
    sums_.subtrees.clear();
    std::erase_if(sums_.losses, of_round);
  }
  const auto bad_leaf = [&](const auto& leaf) { return is_bad(leaf.second); };
  if (std::ranges::any_of(sums_.unsynchronized, bad_leaf) || is_bad(sums_.total) || bad_loss(false)) {
    sums_.unsynchronized.clear();
    sums_.total = {};
    std::erase_if(sums_.losses, [&](const auto& loss) { return !of_round(loss); });
  }
  if (is_bad(given_) || std::ranges::any_of(given_losses_, failed)) {
    given_ = {};
    given_losses_.clear();
  }
  if (reducer_) reducer_->drop_failed(index_);
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
}

ReducedGradient GradientTree::sum_of_passes(Device device) {
  if (reducer_) return reducer_->sum(index_, device);
  const Array any = sums_.total.defined()           ? sums_.total
                    : !sums_.subtrees.empty()       ? sums_.subtrees[0].sum
                    : !sums_.unsynchronized.empty() ? sums_.unsynchronized.begin()->second
                                                    : Array();
  if (!any.defined()) return {};
  drop_failed(*any.storage()->engine);
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
  if (hooks_.empty() && !given_.defined()) return sum_of_passes(device);
  const auto version = [&] { return version_ + (reducer_ ? reducer_->rounds() : 0); };
  if (!mapped_.sum.defined() || mapped_version_ != version()) {
    mapped_ = mapped_sum(device);
    // Now, because the sum may have dropped what has failed.
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

void GradientTree::set(Array gradient, std::vector<Resource> losses) {
  check_summed();
  clear();
  given_ = std::move(gradient);
  given_losses_ = std::move(losses);
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
  given_losses_.clear();
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
  return taken;
}

}  // namespace lockstep
