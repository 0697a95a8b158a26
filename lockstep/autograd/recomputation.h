// Internal: what a checkpoint keeps in place of the memory that its operations saved: the function, its inputs, and
// what else decides its results. See docs/decisions/50-a-checkpoint-keeps-its-graph.md.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/outline.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/ops/origin.h"
#include "lockstep/ops/random.h"

namespace lockstep {

struct Node;

class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  explicit Recomputation(Function f);

  // Calls the function. The nodes that it makes keep their places in the graph, and lose what they saved.
  std::vector<Tensor> call(std::span<const Tensor> inputs);
  // The nodes that wait for their backward functions.
  std::vector<std::shared_ptr<Node>> waiting() const;
  // Calls the function again, and gives the nodes their backward functions. Throws Error if memory that the function
  // read was changed, or if the function does something else. Then the nodes still wait.
  void repeat();

 private:
  std::vector<Tensor> stand_ins() const;
  void check_outputs(std::span<const Tensor> outputs) const;
  void check_nodes(std::span<const std::shared_ptr<Node>> again) const;

  const Function f_;
  const std::optional<DType> autocast_;
  const int shard_;
  const ops::Origin origin_;
  // The inputs without their history, so that a long chain of checkpoints is no chain of owners.
  struct Input {
    Tensor x;
    bool has_history = false;
  };
  std::vector<Input> inputs_;
  std::vector<Outline> outputs_;
  std::vector<std::weak_ptr<Node>> nodes_;
  CheckpointScope::Seen seen_;
  std::vector<ops::DropoutKey> keys_;
};

}  // namespace lockstep
