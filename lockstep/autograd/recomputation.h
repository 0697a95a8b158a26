// Internal: what a checkpoint keeps in place of the memory that its operations saved: the function, its inputs, and
// what else decides its results. See docs/decisions/50-a-checkpoint-keeps-its-graph.md.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/outline.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/ops/origin.h"
#include "lockstep/ops/random.h"

namespace lockstep {

struct GradMeta;
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
  // Where an operand of a node comes from: a result of a node of the function, an input with a history, or a history or
  // leaf outside; nothing if it needs no gradient.
  struct Source {
    std::ptrdiff_t node = -1, input = -1;
    int output = 0;
    std::weak_ptr<GradMeta> outside = {};
    bool operator==(const Source& other) const;
  };
  using Sources = std::vector<std::vector<Source>>;
  // By the inputs' histories: the first input with the history.
  using InputsOf = std::unordered_map<const GradMeta*, std::ptrdiff_t>;
  static Sources sources_of(std::span<const std::shared_ptr<Node>> nodes, const InputsOf& inputs);

  std::vector<Tensor> stand_ins(InputsOf& inputs) const;
  void check_outputs(std::span<const Tensor> outputs) const;
  void check_nodes(std::span<const std::shared_ptr<Node>> again, const InputsOf& inputs) const;

  const Function f_;
  const std::optional<DType> autocast_;
  const int shard_;
  const ops::Origin origin_;
  // The inputs without their history, so that a long chain of checkpoints is no chain of owners.
  struct Input {
    Tensor x;
    bool has_history = false;
    std::weak_ptr<GradMeta> history = {};
    std::ptrdiff_t first = 0;  // the first input with this history
  };
  std::vector<Input> inputs_;
  std::vector<Outline> outputs_;
  std::vector<std::weak_ptr<Node>> nodes_;
  Sources sources_;  // of the nodes
  CheckpointScope::Seen seen_;
  std::vector<ops::DropoutKey> keys_;
};

}  // namespace lockstep
