// Internal: watches the function of a checkpoint: its first call, and its repetition in backward().
//
// Operations, modules, and layers report to it what decides whether a repetition gives the same bits: the nodes that
// are made, the memory that is read, and the modes. Outside of a checkpoint, each report costs one comparison.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

struct Node;
struct Storage;

class CheckpointScope {
 public:
  // What a first call saw.
  struct Seen {
    // Memory that an operation read, as it was then. Memory of the function's own is gone after the call.
    struct Read {
      std::weak_ptr<Storage> storage;
      std::uint64_t version = 0;
      std::string operation;
      std::string label;  // of a parameter
    };
    std::unordered_map<const Storage*, Read> reads;
    // The parameters and buffers that operations read. A parameter that is moved or loaded becomes another tensor.
    std::unordered_map<const TensorImpl*, Tensor> parameters;
    // The answers of each mode, one after the other.
    std::unordered_map<const void*, std::vector<bool>> modes;

    // Throws Error if memory that still exists was written since it was read.
    void check_unchanged() const;
  };

  // Watches a first call.
  CheckpointScope();
  // Watches a repetition: modes are those of the first call. `first` must outlive it. Scopes that were made before see
  // nothing of the repetition.
  explicit CheckpointScope(const Seen& first);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

  // The nodes, in the order in which they were made.
  const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }
  // Returns what the call saw. Call it once, at the end.
  Seen take();

  // For make_node().
  static void made(const std::shared_ptr<Node>& node) {
    if (current()) note_made(node);
  }
  // For each operation that reads tensors, with a history or without; undefined tensors are left out. Throws in a
  // repetition if it reads a parameter that the first call did not read.
  static void read(std::string_view operation, std::span<const Tensor> inputs) {
    if (current()) note_read(operation, inputs);
  }
  // Returns now(), which decides what a function computes, or in a repetition what it was in the first call. `what` is
  // the address that stands for the mode, such as that of a module for its training().
  template <std::predicate F>
  static bool mode(const void* what, const F& now) {
    if (!current()) return now();
    const std::optional<bool> kept = kept_mode(what);
    return noted_mode(what, kept ? *kept : now());
  }
  // Whether this thread is in a function that a checkpoint calls.
  static bool is_active() { return current() != nullptr; }
  // Whether this thread repeats a function, so that the results of its modules are already known.
  static bool repeats();
  // Whether this thread repeats a function that has not made this tensor: hooks that it gives to the tensor are there.
  static bool repeats_without(const Tensor& x);
  // Calls f, which changes what lasts, such as running statistics, unless this is a repetition. What f reads decides no
  // result of the function.
  static void once(const std::function<void()>& f);

 private:
  static CheckpointScope* current();
  static void note_made(const std::shared_ptr<Node>& node);
  static void note_read(std::string_view operation, std::span<const Tensor> inputs);
  static std::optional<bool> kept_mode(const void* what);
  static bool noted_mode(const void* what, bool value);
  // The next scope that sees what this one sees; null above a repetition.
  CheckpointScope* next() const { return first_ ? nullptr : outer_; }

  CheckpointScope* const outer_;
  const Seen* const first_ = nullptr;  // of a repetition
  std::vector<std::shared_ptr<Node>> nodes_;
  Seen seen_;
  std::unordered_map<const void*, std::size_t> answered_;  // modes of a repetition
};

}  // namespace lockstep
