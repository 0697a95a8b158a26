#include "lockstep/parallel/recorded_step.h"

#include <algorithm>
#include <utility>

#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/in_use.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {
namespace {

bool alike_parts(const Array& a, const Array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.layout() == b.layout() && a.device() == b.device() &&
         a.shard() == b.shard();
}

// Returns the parts that an input supplies. A replicated tensor supplies only its first part, because the other parts
// are copies made on demand.
std::span<const Array> brought(const Tensor& t) {
  const bool on_demand = t->kind == Kind::replicated && t->at;
  return std::span(t->parts).first(on_demand ? 1 : t->parts.size());
}

bool alike(const Tensor& a, const Tensor& b) {
  return a->kind == b->kind && a->cut == b->cut && same_placement(a->at, b->at) &&
         std::ranges::equal(brought(a), brought(b), alike_parts);
}

Tensor copy_of(const Tensor& t) {
  std::vector<Array> parts;
  for (const Array& part : brought(t)) {
    ops::ShardScope scope(part.shard());
    parts.push_back(ops::empty(part.shape(), part.dtype(), part.device(), part.layout()));
    ops::copy_(part, parts.back());
  }
  if (parts.empty()) return {};
  switch (t->kind) {
    case Kind::cut: return cut_tensor(t->at, t->cut, std::move(parts));
    case Kind::replicated: return replicated_tensor(std::move(parts), t->at);
    default: return parts[0];
  }
}

std::vector<Tensor> copies_of(std::span<const Tensor> tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& t : tensors) copies.push_back(copy_of(t));
  return copies;
}

}  // namespace

RecordedStep::RecordedStep(Describe describe, RecordedStepOptions options)
    : describe_(std::move(describe)), options_(options), use_(std::make_shared<InUse>()) {
  check(options.warm_up >= 1, "recorded step: {} steps to warm up, expected at least 1", options.warm_up);
}

RecordedStep::~RecordedStep() = default;

std::string RecordedStep::why_no_graph() const { return tasks_ ? tasks_->why_no_graph() : "nothing is recorded"; }

std::vector<Tensor> RecordedStep::run(std::span<const Tensor> inputs) {
  const InUse::Scope use(*use_, "recorded step");
  check(!inputs.empty(), "recorded step: no inputs");
  for (const Tensor& t : inputs) {
    check(t.defined() && !t.device().is_host(), "recorded step: an input is {}, expected it on a device", t);
    check(!t.requires_grad(),
          "recorded step: an input has a history or requires a gradient, expected data: detach() it");
  }
  // This is part of another step's recording.
  if (StepRecorder::current()) return describe_(inputs);
  const bool same = std::ranges::equal(inputs, inputs_, alike);
  if (tasks_ && same && !tasks_->valid()) {
    tasks_ = nullptr;
    outputs_.clear();
    described_ = 0;
  }
  if (tasks_) return same ? repeat(inputs) : describe_(inputs);
  if (!why_not_.empty()) return describe_(inputs);
  if (same && described_ >= options_.warm_up) return record(inputs);
  described_ = same ? described_ + 1 : 1;
  inputs_.assign(inputs.begin(), inputs.end());
  return describe_(inputs);
}

std::vector<Tensor> RecordedStep::record(std::span<const Tensor> inputs) {
  const std::shared_ptr<Engine> engine = state_of(inputs[0].device(), "recorded step").engine;
  // Free the memory of described steps for the recorded one, which has its own.
  for (const Tensor& t : inputs) {
    for (Device device : t.devices()) state_of(device, "recorded step").allocator->release_free();
  }
  inputs_ = copies_of(inputs);
  StepRecorder recorder(engine);
  try {
    outputs_ = describe_(inputs_);
  } catch (const std::exception& error) {
    // There may be too little memory for a recorded step.
    why_not_ = fmt::format("while it was recorded: {}", error.what());
    throw;
  }
  tasks_ = recorder.finish();
  const std::vector<Tensor> outputs = std::move(outputs_);
  for (const Tensor& t : outputs) outputs_.push_back(t.defined() ? t.detach() : t);
  if (!tasks_->why_not().empty()) {
    why_not_ = tasks_->why_not();
    tasks_ = nullptr;
    return std::exchange(outputs_, {});
  }
  return copies_of(outputs_);
}

std::vector<Tensor> RecordedStep::repeat(std::span<const Tensor> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto from = brought(inputs[i]), to = brought(inputs_[i]);
    for (std::size_t p = 0; p < from.size(); ++p) ops::copy_(from[p], to[p]);
  }
  tasks_->repeat();
  return copies_of(outputs_);
}

}  // namespace lockstep
