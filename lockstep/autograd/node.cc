#include "lockstep/autograd/node.h"

#include <algorithm>
#include <atomic>

#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

thread_local bool recording = true;

std::uint64_t next_order() {
  static std::atomic<std::uint64_t> order{0};
  return order.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void GradMeta::accumulate(int shard, const Tensor& gradient) {
  ops::ShardScope scope(shard);
  grad = grad.defined() ? add_gradients(grad, gradient) : gradient;
}

Tensor add_gradients(const Tensor& a, const Tensor& b) {
  if (!a.device().is_host()) return ops::binary(BinaryOp::add, a, b);
  ops::check_same("backward", a, b);
  a.wait();
  b.wait();
  Tensor sum = Tensor::host(a.shape(), a.dtype()).with_shard(a.shard());
  visit_dtype(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto add = [](T x, T y) {
      if constexpr (is_half<T>) {
        return T(static_cast<float>(x) + static_cast<float>(y));
      } else {
        return static_cast<T>(x + y);
      }
    };
    std::transform(a.view().as<T>(), a.view().as<T>() + a.numel(), b.view().as<T>(), sum.view().as<T>(), add);
  });
  return sum;
}

Tensor GradMeta::destination(int, Device) { return {}; }

Tensor Node::destination(std::size_t input, Device device) const {
  const Edge& edge = inputs[input];
  return edge.target && !edge.target->node ? edge.target->destination(edge.shard, device) : Tensor();
}

Node::~Node() {
  backward = nullptr;
  // Takes over the inputs of nodes that nobody else holds, instead of destroying them one inside the other.
  std::vector<Edge> pending = std::move(inputs);
  while (!pending.empty()) {
    Edge edge = std::move(pending.back());
    pending.pop_back();
    if (!edge.target || edge.target.use_count() > 1 || !edge.target->node || edge.target->node.use_count() > 1) continue;
    Node& node = *edge.target->node;
    node.backward = nullptr;
    for (Edge& input : node.inputs) pending.push_back(std::move(input));
    node.inputs.clear();
  }
}

NoGradGuard::NoGradGuard() : previous_(recording) { recording = false; }
NoGradGuard::~NoGradGuard() { recording = previous_; }
bool grad_enabled() { return recording; }

bool needs_grad(std::span<const Tensor> tensors) {
  if (!recording) return false;
  for (const Tensor& t : tensors) {
    if (t.grad_meta()) return true;
  }
  return false;
}
bool needs_grad(std::initializer_list<Tensor> tensors) {
  return needs_grad(std::span(tensors.begin(), tensors.size()));
}

int shard_of(std::span<const Tensor> inputs) {
  for (const Tensor& t : inputs) {
    if (t.shard() >= 0) return t.shard();
  }
  return ops::ShardScope::current();
}
int shard_of(std::initializer_list<Tensor> inputs) { return shard_of(std::span(inputs.begin(), inputs.size())); }

std::vector<Tensor> record(std::string_view name, std::span<const Tensor> inputs, std::vector<Tensor> outputs,
                           BackwardFunction backward) {
  if (!needs_grad(inputs)) return outputs;
  auto node = std::make_shared<Node>();
  node->name = name;
  node->shard = shard_of(inputs);
  node->order = next_order();
  node->outputs = static_cast<int>(outputs.size());
  node->backward = std::move(backward);
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    node->inputs.push_back({input.grad_meta(), input.shard() >= 0 ? input.shard() : node->shard});
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    auto meta = std::make_shared<GradMeta>();
    meta->node = node;
    meta->output = static_cast<int>(i);
    outputs[i].set_grad_meta(std::move(meta));
  }
  return outputs;
}

Tensor record(std::string_view name, std::initializer_list<Tensor> inputs, const Tensor& output,
              std::function<std::vector<Tensor>(const Node& node, const Tensor& dy)> backward) {
  if (!needs_grad(inputs)) return output;
  return record(name, std::span(inputs.begin(), inputs.size()), {output},
                [backward = std::move(backward)](const Node& node, std::span<const Tensor> grads) {
                  return backward(node, grads[0]);
                })[0];
}

}  // namespace lockstep
