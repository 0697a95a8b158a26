#include "lockstep/autograd/node.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/recomputation.h"
#include "lockstep/ops/origin.h"

namespace lockstep {
namespace {

thread_local DtypeWatch* current_watch = nullptr;

std::uint64_t next_order() {
  static std::atomic<std::uint64_t> order{0};
  return order.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

const std::string& PartPass::name() const { return node.name; }
bool PartPass::needs(std::size_t input) const { return node.needs(input); }
Array PartPass::destination(std::size_t input, Device device) const {
  const Edge& edge = node.inputs[input];
  const bool leaf = shard >= 0 && edge.target && !edge.target->node;
  return leaf ? edge.target->destination(pass, shard, device) : Array();
}

void Node::clear() {
  parts.clear();
  mix = nullptr;
  recomputation = nullptr;
}

Node::~Node() {
  clear();
  // Takes the inputs out of nodes without another owner, so that long chains do not recurse.
  std::vector<Edge> pending = std::move(inputs);
  while (!pending.empty()) {
    Edge edge = std::move(pending.back());
    pending.pop_back();
    if (!edge.target || edge.target.use_count() > 1 || !edge.target->node || edge.target->node.use_count() > 1)
      continue;
    Node& node = *edge.target->node;
    node.clear();
    for (Edge& input : node.inputs) pending.push_back(std::move(input));
    node.inputs.clear();
  }
}

bool needs_grad(std::span<const Tensor> tensors) {
  return grad_enabled() && std::ranges::any_of(tensors, [](const Tensor& t) { return t.requires_grad(); });
}

DtypeWatch::DtypeWatch(DType dtype) : dtype_(dtype), outer_(current_watch) { current_watch = this; }
DtypeWatch::~DtypeWatch() { current_watch = outer_; }

void DtypeWatch::note(DType dtype) {
  for (DtypeWatch* watch = current_watch; watch; watch = watch->outer_) watch->seen_ |= watch->dtype_ == dtype;
}

namespace {

// A result of one shard's tensor belongs to that shard, too.
void inherit_shard(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  const auto shard =
      std::ranges::find_if(inputs, [](const Tensor& x) { return x.defined() && x->kind == Kind::whole && x->at; });
  if (shard == inputs.end()) return;
  for (Tensor& y : outputs) {
    if (y->kind == Kind::whole && !y->at) y = shard_tensor((*shard)->at, y->array());
  }
}

}  // namespace

std::shared_ptr<Node> make_node(std::string_view name, std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  auto node = std::make_shared<Node>();
  node->name = name;
  node->order = next_order();
  node->outputs = static_cast<int>(outputs.size());
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs)
    node->inputs.push_back({input->grad, input->kind == Kind::whole && input->at != nullptr});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    auto meta = std::make_shared<GradMeta>();
    meta->node = node;
    meta->output = static_cast<int>(i);
    TensorImpl::of(outputs[i]).grad = std::move(meta);
  }
  for (const Tensor& output : outputs) {
    if (output->at) node->at = output->at;
  }
  node->kind = outputs[0]->kind;
  node->module = ops::OriginScope::current().module;
  CheckpointScope::made(node);
  return node;
}

std::vector<Tensor> record_mix(std::string_view name, std::span<const Tensor> inputs, std::vector<Tensor> outputs,
                               MixBackward backward) {
  inherit_shard(inputs, outputs);
  for (const Tensor& y : outputs) DtypeWatch::note(y.dtype());
  CheckpointScope::read(name, inputs);
  if (ForwardTrace* const trace = ForwardTrace::current()) trace->operation(name, inputs, outputs, {});
  if (!needs_grad(inputs)) return outputs;
  make_node(name, inputs, outputs)->mix = std::move(backward);
  return outputs;
}

Tensor record_mix(std::string_view name, std::initializer_list<Tensor> inputs, Tensor output, MixBackward backward) {
  return record_mix(name, std::span(inputs.begin(), inputs.size()), std::vector{std::move(output)},
                    std::move(backward))[0];
}

}  // namespace lockstep
