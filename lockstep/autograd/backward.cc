#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>

#include "lockstep/autograd/node.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

thread_local std::uint64_t backwards = 0;

// Sums what arrives: the first one is kept as it is, the second makes a new tensor, the others are added in place.
struct Gradient {
  Tensor sum;
  bool own = false;

  void add(const Tensor& g, int shard) {
    if (!sum.defined()) {
      sum = g;
      return;
    }
    ops::ShardScope scope(shard);
    if (own) {
      ops::add_(sum, g);
    } else {
      sum = add_gradients(sum, g);
      own = !sum.device().is_host();
    }
  }
};

// The gradient of a root by itself.
Tensor ones_like(const Tensor& t) {
  if (t.device().is_host()) {
    Tensor ones = Tensor::host(t.shape(), t.dtype());
    visit_dtype(t.dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(ones.view().as<T>(), ones.numel(), T(1));
    });
    return ones;
  }
  ops::ShardScope scope(t.shard());
  Tensor ones = ops::empty_like(t);
  ops::fill_(ones, 1);
  return ones;
}

struct Visit {
  int missing = 0;  // consumers whose gradient has not come yet
  std::vector<Gradient> outputs;
};

struct LeafVisit {
  int missing = 0;
  Gradient gradient;
};

class Walk {
 public:
  explicit Walk(std::span<const int> missing) : missing_(missing) {}

  void add_root(const Tensor& root, const Tensor& seed) {
    const auto& meta = root.grad_meta();
    check(meta != nullptr, "backward: {} was not computed from anything that needs a gradient", root.describe());
    Tensor g = seed;
    if (!g.defined()) {
      check(root.numel() == 1, "backward: {} is not a scalar, expected a gradient for it", root.describe());
      g = ones_like(root.detach());
    }
    roots_.push_back({{meta, root.shard()}, g});
    discover({meta, root.shard()});
  }

  void run() {
    for (auto& [edge, gradient] : roots_) deliver(edge, gradient);
    roots_.clear();
    while (!ready_.empty()) {
      std::shared_ptr<Node> node = ready_.top().second;
      ready_.pop();
      Visit visit = std::move(visits_.at(node.get()));
      std::vector<Tensor> grads(visit.outputs.size());
      for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = std::move(visit.outputs[i].sum);
      std::vector<Tensor> input_grads = run_node(*node, grads);
      for (std::size_t i = 0; i < node->inputs.size(); ++i) deliver(node->inputs[i], input_grads[i]);
      node->backward = nullptr;
    }
  }

 private:
  using LeafKey = std::pair<GradMeta*, int>;

  // Counts, for every node and leaf that can be reached, how many gradients it will get.
  void discover(const Edge& first) {
    std::vector<Edge> pending{first};
    while (!pending.empty()) {
      Edge edge = std::move(pending.back());
      pending.pop_back();
      if (!edge.target) continue;
      if (!edge.target->node) {
        ++leaves_[{edge.target.get(), edge.shard}].missing;
        continue;
      }
      Node& node = *edge.target->node;
      auto [it, is_new] = visits_.try_emplace(&node);
      ++it->second.missing;
      if (!is_new) continue;
      check(node.backward != nullptr, "backward: the history of {} was used by an earlier backward()", node.name);
      it->second.outputs.resize(static_cast<std::size_t>(node.outputs));
      for (const Edge& input : node.inputs) pending.push_back(input);
    }
  }

  void deliver(const Edge& edge, const Tensor& gradient) {
    if (!edge.target) return;
    if (!edge.target->node) {
      LeafVisit& leaf = leaves_.at({edge.target.get(), edge.shard});
      if (gradient.defined()) leaf.gradient.add(gradient, edge.shard);
      if (--leaf.missing == 0 && leaf.gradient.sum.defined()) {
        if (std::ranges::find(missing_, edge.shard) == missing_.end()) {
          edge.target->accumulate(edge.shard, leaf.gradient.sum);
        }
        leaf.gradient.sum = {};
      }
      return;
    }
    const std::shared_ptr<Node>& node = edge.target->node;
    Visit& visit = visits_.at(node.get());
    if (gradient.defined()) visit.outputs[static_cast<std::size_t>(edge.target->output)].add(gradient, node->shard);
    if (--visit.missing == 0) ready_.emplace(node->order, node);
  }

  static std::vector<Tensor> run_node(const Node& node, std::span<const Tensor> grads) {
    bool any = false;
    for (const Tensor& g : grads) any = any || g.defined();
    // Nothing that the roots depend on went through here.
    if (!any) return std::vector<Tensor>(node.inputs.size());
    ops::ShardScope scope(node.shard);
    std::vector<Tensor> input_grads = node.backward(node, grads);
    check(input_grads.size() == node.inputs.size(), "backward of {}: {} gradients, expected one for each of {} inputs",
          node.name, input_grads.size(), node.inputs.size());
    return input_grads;
  }

  std::span<const int> missing_;
  std::vector<std::pair<Edge, Tensor>> roots_;
  std::unordered_map<Node*, Visit> visits_;
  std::map<LeafKey, LeafVisit> leaves_;
  std::priority_queue<std::pair<std::uint64_t, std::shared_ptr<Node>>> ready_;
};

}  // namespace

void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, std::span<const int> missing) {
  check(roots.size() == seeds.size(), "backward: {} roots and {} gradients", roots.size(), seeds.size());
  NoGradGuard no_grad;
  ++backwards;
  Walk walk(missing);
  for (std::size_t i = 0; i < roots.size(); ++i) walk.add_root(roots[i], seeds[i]);
  walk.run();
}

std::uint64_t backward_number() { return backwards; }

// --- Tensor's own words ---

Tensor& Tensor::set_requires_grad(bool value) {
  check(defined() && is_floating(dtype()), "requires_grad: {}, expected a floating tensor", describe());
  check(!grad_meta_ || !grad_meta_->node, "requires_grad: {} is not a leaf", describe());
  if (!value) {
    grad_meta_ = nullptr;
  } else if (!grad_meta_) {
    grad_meta_ = std::make_shared<GradMeta>();
  }
  return *this;
}
bool Tensor::requires_grad() const { return grad_meta_ != nullptr; }
Tensor Tensor::grad() const { return grad_meta_ ? grad_meta_->grad : Tensor(); }
void Tensor::zero_grad() {
  if (grad_meta_) grad_meta_->grad = {};
}
void Tensor::backward() const {
  Tensor seed;
  lockstep::backward(std::span(this, 1), std::span(&seed, 1));
}

}  // namespace lockstep
