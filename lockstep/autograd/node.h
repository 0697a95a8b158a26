// The graph of backward functions, made while the forward pass runs. backward() walks it on the host thread and only
// pushes tasks, so that all devices work at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

struct Node;

// What autograd keeps of a tensor: which output of which node it is, or that it is a leaf whose gradient is wanted.
struct GradMeta {
  virtual ~GradMeta() = default;
  // Of a leaf: takes the gradient that one backward() found for one shard. Called on the host thread; the tensor may
  // not be computed yet. The default sums into `grad`.
  virtual void accumulate(int shard, const Tensor& gradient);
  // Of a leaf: memory on `device` for that gradient, plain, of the leaf's shape and type, from which it is summed without
  // being copied. Undefined: there is none. To be asked for by who is about to fill it.
  virtual Tensor destination(int shard, Device device);

  std::shared_ptr<Node> node;  // null for a leaf
  int output = 0;
  Tensor grad;
};

// Where a gradient goes: an output of an earlier node, or a leaf. Without both: nobody needs it.
struct Edge {
  std::shared_ptr<GradMeta> target;
  // The shard for which a leaf gets it.
  int shard = -1;
};

// The gradients of a node's inputs (undefined where not needed, see Node::needs) from those of its outputs (undefined
// where an output had no influence).
using BackwardFunction = std::function<std::vector<Tensor>(const Node& node, std::span<const Tensor> output_grads)>;

struct Node {
  std::string name;
  // Whose lane the gradients are computed on; leaves get them for this shard unless an edge says otherwise.
  int shard = -1;
  // Later nodes have larger numbers: walking them downwards respects every dependency.
  std::uint64_t order = 0;
  int outputs = 1;
  std::vector<Edge> inputs;
  // Empty once it has run: what it saved is freed at once.
  BackwardFunction backward;

  bool needs(std::size_t input) const { return inputs[input].target != nullptr; }
  // Memory for an input's gradient, or undefined; see GradMeta.
  Tensor destination(std::size_t input, Device device) const;
  // Long chains must not end in deep recursion.
  ~Node();
};

// While one lives, this thread records nothing.
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};
bool grad_enabled();

// Whether any of the tensors has a history or is a leaf that wants its gradient, and recording is on.
bool needs_grad(std::span<const Tensor> tensors);
bool needs_grad(std::initializer_list<Tensor> tensors);

// The shard that the result of these inputs belongs to: the first one that has any.
int shard_of(std::span<const Tensor> inputs);
int shard_of(std::initializer_list<Tensor> inputs);

// Records that `outputs` came from `inputs`. Outputs are returned with their history; where no input needs a gradient
// they are returned as they are.
std::vector<Tensor> record(std::string_view name, std::span<const Tensor> inputs, std::vector<Tensor> outputs,
                           BackwardFunction backward);
// One output, the usual case: the function gets its gradient.
Tensor record(std::string_view name, std::initializer_list<Tensor> inputs, const Tensor& output,
              std::function<std::vector<Tensor>(const Node& node, const Tensor& dy)> backward);

// a + b, of gradients for one tensor. In host memory, where no device computes, this waits for both.
Tensor add_gradients(const Tensor& a, const Tensor& b);

// Gradients of all leaves that `roots` were computed from, in one walk. seeds[i] is the gradient of roots[i];
// undefined: 1, for a scalar. The graph is used up. Leaves get nothing for shards in `missing`, which have no samples: no
// gradient is not the same as one of zeros.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, std::span<const int> missing = {});
// Of the latest backward() of this thread, from 1: what one of them found belongs together.
std::uint64_t backward_number();

}  // namespace lockstep
