#include "lockstep/autograd/recomputation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/checkpoint.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/draw_log.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

// Turns recording on, which backward() has turned off.
class RecordingAgain {
 public:
  RecordingAgain() : previous_(grad_enabled()) { set_grad_enabled(true); }
  ~RecordingAgain() { set_grad_enabled(previous_); }
  RecordingAgain(const RecordingAgain&) = delete;
  RecordingAgain& operator=(const RecordingAgain&) = delete;

 private:
  const bool previous_;
};

bool is_alike(const Outline& a, const Outline& b) {
  return a.defined == b.defined && a.kind == b.kind && a.shape == b.shape && a.dtype == b.dtype && a.cut == b.cut &&
         a.devices == b.devices;
}

// Whether a node can take the backward functions of another.
bool fits_into(const Node& again, const Node& node) {
  if (again.name != node.name || again.outputs != node.outputs || again.inputs.size() != node.inputs.size() ||
      again.kind != node.kind || again.devices != node.devices || again.has_mix() != node.has_mix() ||
      !same_placement(again.at, node.at))
    return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.needs(i) && !again.needs(i)) return false;
  }
  return true;
}

}  // namespace

bool Recomputation::Source::operator==(const Source& other) const {
  return node == other.node && input == other.input && output == other.output && !outside.owner_before(other.outside) &&
         !other.outside.owner_before(outside);
}

Recomputation::Sources Recomputation::sources_of(std::span<const std::shared_ptr<Node>> nodes, const InputsOf& inputs) {
  std::unordered_map<const Node*, std::ptrdiff_t> places;
  for (const auto& node : nodes) places.try_emplace(node.get(), std::ssize(places));
  Sources all;
  for (const auto& node : nodes) {
    std::vector<Source>& operands = all.emplace_back();
    for (const Edge& edge : node->inputs) {
      Source& source = operands.emplace_back();
      if (!edge.target) continue;
      const auto place = edge.target->node ? places.find(edge.target->node.get()) : places.end();
      if (place != places.end()) {
        source.node = place->second, source.output = edge.target->output;
      } else if (const auto input = inputs.find(edge.target.get()); input != inputs.end()) {
        source.input = input->second;
      } else {
        source.outside = edge.target;
      }
    }
  }
  return all;
}

Recomputation::Recomputation(Function f)
    : f_(std::move(f)), autocast_(autocast_dtype()), shard_(ops::ShardScope::current()),
      origin_(ops::OriginScope::current()) {}

std::vector<Tensor> Recomputation::call(std::span<const Tensor> inputs) {
  CheckpointScope scope;
  CheckpointScope::read("the function", inputs);
  const ops::DrawLog draws;
  std::vector<Tensor> outputs = f_(inputs);
  if (scope.nodes().empty()) return outputs;
  InputsOf input_of;
  for (const Tensor& x : inputs) {
    // A parameter keeps its identity; it has no history.
    if (!x.defined() || !x->label.empty()) {
      inputs_.push_back({x});
      continue;
    }
    const bool has_history = x->grad && x->grad->node;
    inputs_.push_back({x.detach(), has_history});
    Input& input = inputs_.back();
    if (has_history) {
      input.history = x->grad;
      input.first = input_of.try_emplace(x->grad.get(), std::ssize(inputs_) - 1).first->second;
    } else {
      TensorImpl::of(input.x).grad = x->grad;
    }
  }
  sources_ = sources_of(scope.nodes(), input_of);
  for (const Tensor& y : outputs) outputs_.emplace_back(y);
  keys_ = draws.keys();
  for (const std::shared_ptr<Node>& node : scope.nodes()) {
    const std::size_t place = nodes_.size();
    nodes_.push_back(node);
    // grad() in the function has used it.
    if (node->used()) continue;
    node->will_mix = node->has_mix();
    node->clear();
    node->recomputation = shared_from_this();
    node->place = place;
  }
  seen_ = scope.take();
  return outputs;
}

std::vector<std::shared_ptr<Node>> Recomputation::waiting() const {
  std::vector<std::shared_ptr<Node>> all;
  for (const auto& each : nodes_) {
    std::shared_ptr<Node> node = each.lock();
    if (node && node->recomputation.get() == this) all.push_back(std::move(node));
  }
  return all;
}

// Results that need a gradient where the inputs of the first call did, but lead nowhere.
std::vector<Tensor> Recomputation::stand_ins(InputsOf& inputs) const {
  std::vector<Tensor> all;
  for (const auto& [x, has_history, history, first] : inputs_) {
    if (!has_history) {
      all.push_back(x);
      continue;
    }
    all.push_back(x.detach());
    auto meta = std::make_shared<GradMeta>();
    meta->node = std::make_shared<Node>();
    meta->node->name = "checkpoint input";
    inputs.try_emplace(meta.get(), first);
    // The function may also capture the tensor that it gets.
    if (const auto captured = history.lock()) inputs.try_emplace(captured.get(), first);
    TensorImpl::of(all.back()).grad = std::move(meta);
  }
  return all;
}

void Recomputation::check_outputs(std::span<const Tensor> outputs) const {
  check(outputs.size() == outputs_.size(),
        "checkpoint: the function returned {} tensors in backward(), expected {} as in forward", outputs.size(),
        outputs_.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (const Outline now(outputs[i]); !is_alike(now, outputs_[i])) {
      fail("checkpoint: result {} of the function is {} in backward(), expected {} as in forward", i, now.str(),
           outputs_[i].str());
    }
  }
}

void Recomputation::check_nodes(std::span<const std::shared_ptr<Node>> again, const InputsOf& inputs) const {
  const Sources sources = sources_of(again, inputs);
  for (std::size_t i = 0; i < std::min(again.size(), nodes_.size()); ++i) {
    const std::shared_ptr<Node> node = nodes_[i].lock();
    if (!node || node->recomputation.get() != this) continue;
    check(fits_into(*again[i], *node),
          "checkpoint: operation {} of the function is {} in backward(), expected {} as in forward, of operands alike: "
          "the function must do the same in both calls",
          i, again[i]->name, node->name);
    check(
        sources[i] == sources_[i],
        "checkpoint: operation {} of the function, {}, has other operands in backward() than in forward, or they need "
        "other gradients: expected the same ones. An operation in place or an assignment may have replaced a tensor "
        "that the function captures; pass the tensor to the function",
        i, node->name);
  }
  check(again.size() == nodes_.size(),
        "checkpoint: the function has {} operations with a gradient in backward(), expected {} as in forward: it must "
        "do the same in both calls",
        again.size(), nodes_.size());
}

void Recomputation::repeat() {
  const std::shared_ptr<Recomputation> self = shared_from_this();  // the nodes let go of it
  seen_.check_unchanged();
  const RecordingAgain recording;
  const AutocastGuard autocast(autocast_);
  const TracePause untraced;
  const ops::ShardScope shard(shard_);
  const ops::OriginScope origin(origin_);
  CheckpointScope scope(seen_);
  const ops::DrawLog draws(keys_);
  InputsOf inputs;
  const std::vector<Tensor> given = stand_ins(inputs);
  const std::vector<Tensor> outputs = f_(given);
  check_outputs(outputs);
  check_nodes(scope.nodes(), inputs);
  check(draws.left() == 0,
        "checkpoint: the function drew random numbers {} times in backward(), expected {} as in forward",
        keys_.size() - draws.left(), keys_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::shared_ptr<Node> node = nodes_[i].lock();
    if (!node || node->recomputation.get() != this) continue;
    Node& again = *scope.nodes()[i];
    node->parts = std::move(again.parts);
    node->mix = std::move(again.mix);
    // A checkpoint in the function has made the node.
    node->recomputation = std::move(again.recomputation);
    node->place = again.place;
    if (node->recomputation) node->recomputation->nodes_[node->place] = node;
  }
}

std::vector<Tensor> checkpoint(const CheckpointFunction& f, std::span<const Tensor> inputs) {
  check(f != nullptr, "checkpoint: no function");
  // A trace describes the operations, which a checkpoint does not change.
  if (!grad_enabled() || ForwardTrace::current()) return f(inputs);
  return std::make_shared<Recomputation>(f)->call(inputs);
}

void checkpoint_once(const std::function<void()>& f) { CheckpointScope::once(f); }

RandomKey checkpoint_key(const std::function<RandomKey()>& draw) {
  return ops::DrawLog::next("checkpoint_key", [&] { return ops::DropoutKey{draw()}; }).key;
}

}  // namespace lockstep
