// Internal: the graph of backward functions, made while the forward pass runs: one node per operation, for any number
// of shards. backward() walks it on the host thread and only pushes tasks, so all devices work at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/autograd/gradient.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/base/in_use.h"
#include "lockstep/base/small_vector.h"
#include "lockstep/engine/failure_group.h"

namespace lockstep {

struct Node;
class Recomputation;  // autograd/recomputation.h
struct TensorHooks;   // autograd/tensor_hooks.h

// The arrays of one part of an operation.
using Arrays = SmallVector<Array, 4>;

struct BackwardPass;

// Sums gradients over processes, as parallel/bucket_reducer.h does.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  // Called when a pass that reached a leaf of this object has described all gradients.
  virtual void end_backward(const BackwardPass& pass) = 0;
};

// One call of backward().
struct BackwardPass {
  // Counts passes of all threads from 1. Gradients with the same number belong together.
  std::uint64_t number = 0;
  bool sync = true;
  // The batch that the roots were computed from; null for roots made of parameters or whole tensors alone.
  std::shared_ptr<const Placement> at;
  // The tasks of the pass, and the data of the roots: the gradients are invalid if any of them fails.
  std::shared_ptr<FailureGroup> failures;
  // Whether the caller accumulates gradients: it gave a share of the step, or does not synchronize.
  bool accumulates = false;
  // Whether an optimizer's step has used gradients of this pass. Shared with each ParameterGradient that has one.
  std::shared_ptr<bool> used = std::make_shared<bool>(false);
  bool warned = false;  // about an old gradient that this pass adds to
  // Observers of the leaves that were reached, in the order of the graph.
  std::vector<std::shared_ptr<BackwardObserver>> observers;
};

// Autograd's record of a tensor, which is an output of a node or a leaf that requires a gradient. Other than grad() and
// zero_grad(), virtual functions are called for leaves only.
struct GradMeta {
  virtual ~GradMeta() = default;
  // Called before the leaf's first gradient is computed, when the pass's batch is known.
  virtual void reached(BackwardPass&) {}
  // Takes the gradient that one pass found. Called on the host thread; arrays may not be computed yet.
  virtual void accumulate(const BackwardPass& pass, Gradient gradient);
  // Whether accumulate_shard() takes one shard's addend at a time, before accumulate() takes the rest. Then few addends
  // are in memory at once.
  virtual bool takes_shards() const { return false; }
  // For such a leaf: the shard of this process whose addend gets the contributions that count once; -1 if another
  // process adds them.
  virtual int once_shard(const BackwardPass&) const { return 0; }
  virtual void accumulate_shard(const BackwardPass&, Gradient::Addend) {}
  // abandon() undoes accumulate() after a pass that failed; passed() is called when all of the pass has been described.
  virtual void abandon(const BackwardPass&) {}
  virtual void passed(const BackwardPass&) {}
  // Returns memory on `device` for a shard's addend, plain, with the leaf's shape and type, from which it is summed
  // without being copied; undefined if there is none. Call it just before filling the memory.
  virtual Array destination(const BackwardPass&, int /*shard*/, Device) { return {}; }
  // For a result: the gradient that retain_grad() kept.
  virtual Tensor grad() const;
  virtual void zero_grad();

  std::shared_ptr<TensorHooks> hooks;  // null if there are none
  // For a leaf: the thread whose backward() reaches it. Two passes at once would lose gradients.
  InUse use;
  std::shared_ptr<Node> node;  // null for a leaf
  int output = 0;
};

// What the backward function of a part sees of the pass.
struct PartPass {
  const Node& node;
  const BackwardPass& pass;
  int shard;  // -1: the gradient counts once, for all shards

  const std::string& name() const;
  bool needs(std::size_t input) const;
  // Memory for an input's gradient, or undefined; see GradMeta.
  Array destination(std::size_t input, Device device) const;
};

// The gradients of the inputs' parts (undefined where not needed) from that of the output's part.
using PartBackward = std::function<Arrays(const PartPass& pass, const Array& dy)>;
// For operations that mix shards: computes all gradients of inputs from all gradients of outputs.
using MixBackward = std::function<void(const Node& node, const BackwardPass& pass, std::span<const Gradient> dy,
                                       std::span<Gradient> dx)>;

// The destination of a gradient: an output of an earlier node, or a leaf. Without a target, the gradient is not needed.
struct Edge {
  std::shared_ptr<GradMeta> target;
  // Whether the input is one shard's tensor, in per_shard().
  bool of_shard = false;
};

struct Node {
  std::string name;
  // Later nodes have larger numbers, so walking nodes in descending order respects every dependency.
  std::uint64_t order = 0;
  int outputs = 1;
  std::vector<Edge> inputs;

  // The outputs' kind and placement.
  Kind kind = Kind::whole;
  std::shared_ptr<const Placement> at;
  // The devices of `parts`, for a replicated or whole output.
  std::vector<Device> devices;
  // One backward function for each part of the only output, or `mix`. Cleared after the run, to free what they saved.
  std::vector<PartBackward> parts;
  MixBackward mix;
  // For a node that a checkpoint made: where its backward functions come from. Null once it has them.
  std::shared_ptr<Recomputation> recomputation;
  std::size_t place = 0;  // among the nodes of `recomputation`
  bool will_mix = false;  // whether `recomputation` gives it `mix`
  // Module in the ops::Origin of the operation, and of its backward function.
  const void* module = nullptr;
  bool needs(std::size_t input) const { return inputs[input].target != nullptr; }
  bool used() const { return parts.empty() && !mix && !recomputation; }
  bool has_mix() const { return mix || (recomputation && will_mix); }
  void clear();
  // Destroys long chains without deep recursion.
  ~Node();
};

// For messages: "cpu:0", or "[cpu:0, cpu:1]".
std::string describe_devices(const std::vector<Device>& devices);

// Whether recording is on and any of the tensors has a history or is a leaf that requires a gradient.
bool needs_grad(std::span<const Tensor> tensors);

// Notes whether any operation of this thread returns a tensor of this type, with a history or without.
class DtypeWatch {
 public:
  explicit DtypeWatch(DType dtype);
  ~DtypeWatch();
  DtypeWatch(const DtypeWatch&) = delete;
  DtypeWatch& operator=(const DtypeWatch&) = delete;

  bool seen() const { return seen_; }
  // Called for each result of an operation.
  static void note(DType dtype);

 private:
  const DType dtype_;
  DtypeWatch* const outer_;
  bool seen_ = false;
};

// Makes the node of `outputs`, which get their history. The caller sets its backward functions.
std::shared_ptr<Node> make_node(std::string_view name, std::span<const Tensor> inputs, std::span<Tensor> outputs);
// Records that `outputs` came from `inputs` by an operation that mixes shards. Returns the outputs with their history,
// or unchanged if no input needs a gradient.
std::vector<Tensor> record_mix(std::string_view name, std::span<const Tensor> inputs, std::vector<Tensor> outputs,
                               MixBackward backward);
Tensor record_mix(std::string_view name, std::initializer_list<Tensor> inputs, Tensor output, MixBackward backward);

}  // namespace lockstep
