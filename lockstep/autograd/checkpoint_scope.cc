#include "lockstep/autograd/checkpoint_scope.h"

#include <algorithm>
#include <utility>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

thread_local CheckpointScope* current_checkpoint = nullptr;

}  // namespace

CheckpointScope::CheckpointScope() : outer_(std::exchange(current_checkpoint, this)) {}
CheckpointScope::CheckpointScope(const Seen& first) : outer_(std::exchange(current_checkpoint, this)), first_(&first) {}
CheckpointScope::~CheckpointScope() { current_checkpoint = outer_; }
CheckpointScope* CheckpointScope::current() { return current_checkpoint; }

void CheckpointScope::Seen::check_unchanged() const {
  for (const auto& [address, read] : reads) {
    const auto storage = read.storage.lock();
    if (!storage || storage->written() == read.version) continue;
    fail(
        "checkpoint: {}, which {} read, was changed in place after forward: version {}, expected {}, because "
        "backward() "
        "computes the function again",
        read.label.empty() ? "a tensor" : read.label, read.operation, storage->written(), read.version);
  }
}

CheckpointScope::Seen CheckpointScope::take() {
  std::erase_if(seen_.reads, [](const auto& each) { return each.second.storage.expired(); });
  return std::move(seen_);
}

void CheckpointScope::note_made(const std::shared_ptr<Node>& node) {
  for (CheckpointScope* scope = current_checkpoint; scope; scope = scope->next()) scope->nodes_.push_back(node);
}

void CheckpointScope::note_read(std::string_view operation, std::span<const Tensor> inputs) {
  for (const Tensor& x : inputs) {
    if (!x.defined()) continue;
    const TensorImpl* const impl = x.operator->();
    for (CheckpointScope* scope = current_checkpoint; scope; scope = scope->next()) {
      if (scope->first_) {
        check(x->label.empty() || scope->first_->parameters.contains(impl),
              "checkpoint: {}, which {} reads, was replaced after forward, or the function did not read it then: "
              "expected "
              "the same parameters, because backward() computes the function again",
              x->label, operation);
        continue;
      }
      if (!x->label.empty()) scope->seen_.parameters.try_emplace(impl, x);
      for (const Array& part : x->parts) {
        if (!part.defined()) continue;
        const std::shared_ptr<Storage>& memory = part.storage()->host ? part.storage()->host : part.storage();
        auto [at, is_new] = scope->seen_.reads.try_emplace(memory.get());
        // The address may be that of memory that is gone.
        if (is_new || at->second.storage.expired()) {
          at->second = {memory, memory->written(), std::string(operation), x->label};
        }
      }
    }
  }
}

std::optional<bool> CheckpointScope::kept_mode(const void* what) {
  for (CheckpointScope* scope = current_checkpoint; scope; scope = scope->next()) {
    if (!scope->first_) continue;
    const auto kept = scope->first_->modes.find(what);
    if (kept == scope->first_->modes.end()) return {};
    // A function that does something else is found by its nodes.
    const std::size_t at = scope->answered_[what]++;
    return kept->second[std::min(at, kept->second.size() - 1)];
  }
  return {};
}

bool CheckpointScope::noted_mode(const void* what, bool value) {
  for (CheckpointScope* scope = current_checkpoint; scope; scope = scope->next()) {
    scope->seen_.modes[what].push_back(value);
  }
  return value;
}

bool CheckpointScope::repeats_without(const Tensor& x) {
  if (!repeats()) return false;
  if (!x->grad || !x->grad->node) return true;
  // A result of a node that lacks inputs stands for an input.
  const std::shared_ptr<Node>& node = x->grad->node;
  for (const CheckpointScope* scope = current_checkpoint; scope; scope = scope->outer_) {
    if (std::ranges::find(scope->nodes_, node) != scope->nodes_.end()) return false;
  }
  return !node->inputs.empty();
}

bool CheckpointScope::repeats() {
  for (const CheckpointScope* scope = current_checkpoint; scope; scope = scope->next()) {
    if (scope->first_) return true;
  }
  return false;
}

void CheckpointScope::once(const std::function<void()>& f) {
  if (repeats()) return;
  struct Unseen {
    CheckpointScope* const before = std::exchange(current_checkpoint, nullptr);
    ~Unseen() { current_checkpoint = before; }
  };
  const Unseen unseen;
  f();
}

}  // namespace lockstep
