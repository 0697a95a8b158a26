#include "lockstep/autograd/parameter_gradient.h"

#include <utility>

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
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

void ParameterGradient::set_dtype(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "gradient: rounded to {}, expected f32 or bf16", name(dtype));
  clear();
  sums_ = ShardTree(dtype);
}

Array ParameterGradient::tree_sum(std::span<const Array> leaves, Device device) const {
  return sums_.tree_sum(leaves, device);
}

void ParameterGradient::add(const BackwardPass& pass, int shard, const Array& gradient) {
  if (StepRecorder* recorder = StepRecorder::current()) {
    recorder->begin_gradient(this, !present());
  }
  read_ = {};
  ++version_;
  if (latest_pass_ != pass.number) {
    cleared_behind_.reset();
    drop_failed(false);
    check(!has_scale(),
          "backward: a parameter's gradient is clipped or unscaled already, and its optimizer's step would change what "
          "is added, too: expected clip_grad_norm() and unscale() behind the last backward(), or step() or zero_grad() "
          "before");
    sums_.forget_good_passes(*gradient.storage()->engine);
    latest_pass_ = pass.number;
    latest_failures_ = pass.failures;
    used_ = pass.used;
    before_ = sums_;
  }
  if (reducer_) reducer_->added(index_);
  dropped_ = false;
  sums_.add(pass, synchronizes(pass), shard, gradient);
}

void ParameterGradient::abandon(const BackwardPass& pass) {
  if (latest_pass_ != pass.number || !before_) return;
  sums_ = std::move(*before_);
  before_.reset();
  ++version_;
}

void ParameterGradient::passed(const BackwardPass& pass) {
  if (latest_pass_ == pass.number) before_.reset();
}

Passes ParameterGradient::passes() const {
  Passes all = sums_.passes();
  all.add(of_given_);
  if (reducer_) all.add(reducer_->passes(index_));
  return all;
}

void ParameterGradient::drop_failed(bool read) {
  bool dropped = sums_.drop_failed(read);
  if (reducer_ && reducer_->drop_failed(index_, read)) dropped = true;
  if (given_.defined() && of_given_.drop_failed(*given_.storage()->engine, std::span(&given_, 1), read)) {
    given_ = {};
    dropped = true;
  }
  if (!dropped) return;
  dropped_ = true;
  ++version_;
  read_ = {};
  scale_.reset();
}

Array ParameterGradient::destination(const BackwardPass& pass, int shard, Device device) {
  if (!reducer_ || !synchronizes(pass) || sums_.waits()) return {};
  // A parameter that is used twice: the second gradient is added to the first one.
  if (std::exchange(destinations_[shard], pass.number) == pass.number) return {};
  return reducer_->destination(index_, shard, device);
}

ReducedGradient ParameterGradient::sum_of_passes(Device device) {
  if (reducer_) return reducer_->sum(index_, device);
  if (!sums_.waits()) return {sums_.sum(device), {}};
  // The waiting sums are merged in a copy. If reading merged the sums themselves, later passes would begin another
  // round, so reading a gradient would change the bits.
  if (!read_.defined()) read_ = ShardTree(sums_).sum(device);
  read_ = ops::to_device(read_, device, {.non_blocking = true});
  return {read_, {}};
}

ReducedGradient ParameterGradient::mapped_sum(Device device) {
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
  // If the sum is not present, it holds zeros. Adding them would change -0 to +0, so the given gradient is chosen.
  return {ops::where(ops::to_device(found.present, device, {.non_blocking = true}), both, given), {}};
}

ReducedGradient ParameterGradient::sum(Device device) {
  drop_failed(true);
  // If the sum has gradients of several passes, each pass reports its own failure.
  const FailureScope scope(latest_failures_);
  if (hooks_.empty() && !given_.defined()) return sum_of_passes(device);
  const auto version = [&] { return version_ + (reducer_ ? reducer_->rounds() : 0); };
  if (!mapped_.sum.defined() || mapped_version_ != version()) {
    mapped_ = mapped_sum(device);
    mapped_version_ = version();
  }
  return {ops::readable_from(mapped_.sum, device), ops::readable_from(mapped_.present, device)};
}

Array ParameterGradient::peek(Device device) { return if_present(sum(device)); }

void ParameterGradient::check_summed() const {
  check(!sums_.waits() && (!reducer_ || !reducer_->waits()),
        "gradient: it is not summed yet: expected a backward() with sync, and no no_sync() guard, before it is set or "
        "mapped");
}

void ParameterGradient::set(Array gradient, Passes passes) {
  check_summed();
  clear();
  if (passes.empty()) latest_pass_ = 0;
  given_ = std::move(gradient);
  of_given_ = std::move(passes);
  if (StepRecorder* recorder = StepRecorder::current()) recorder->begin_gradient(this, true);
}

int ParameterGradient::add_hook(Hook hook) {
  if (CheckpointScope::repeats()) return -1;  // the first call of the function has added it
  ++version_;
  ++hook_changes_;
  hooks_.emplace(next_hook_, std::move(hook));
  return next_hook_++;
}

void ParameterGradient::remove_hook(int number) {
  if (number < 0) return;
  ++version_;
  ++hook_changes_;
  hooks_.erase(number);
}

void ParameterGradient::clear_behind(const std::shared_ptr<const void>& optimizer, bool used) {
  const std::weak_ptr<const void> before = cleared_behind_;
  clear();
  cleared_behind_ = used ? std::weak_ptr<const void>(optimizer) : before;
}

bool ParameterGradient::used_by_other(const std::shared_ptr<const void>& optimizer) const {
  const std::shared_ptr<const void> by = cleared_behind_.lock();
  return by != nullptr && by != optimizer;
}

void ParameterGradient::clear() {
  if (StepRecorder* recorder = StepRecorder::current()) recorder->end_gradient(this);
  ++version_;
  dropped_ = false;
  given_ = {};
  of_given_ = {};
  mapped_ = {};
  sums_ = ShardTree(sums_.dtype());
  read_ = {};
  before_.reset();
  used_.reset();
  cleared_behind_.reset();
  scale_.reset();
  if (reducer_) reducer_->clear(index_);
}

void ParameterGradient::set_reducer(std::shared_ptr<Reducer> reducer, std::size_t index) {
  check(!reducer_, "gradient: there is a reducer already");
  clear();
  reducer_ = std::move(reducer);
  index_ = index;
}

void ParameterGradient::remove_reducer(const Reducer& reducer) {
  if (reducer_.get() != &reducer) return;
  clear();
  reducer_ = nullptr;
}

std::vector<std::pair<std::size_t, Array>> ParameterGradient::take_subtrees() { return sums_.take_subtrees(); }

}  // namespace lockstep
