#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>

#include "lockstep/autograd/node.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

thread_local std::uint64_t passes = 0;

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
  explicit Walk(const BackwardOptions& options) : options_(options) {
    pass_.number = ++passes;
    pass_.sync = options.sync;
  }

  void add_root(const Tensor& root, const Tensor& seed) {
    const auto& meta = root.grad_meta();
    check(meta != nullptr, "backward: {} was not computed from anything that needs a gradient", root.describe());
    Gradient g;
    if (!seed.defined()) {
      check(root.numel() == 1 && root.kind() != Kind::cut, "backward: {} is not a scalar, expected a gradient for it",
            root.describe());
      g.seed = Gradient::Seed{options_.share, options_.scales, root.detach()};
    } else {
      check(seed.kind() == root.kind() && seed.shape() == root.shape() && seed.dtype() == root.dtype(),
            "backward: the gradient of {} is {}, expected it alike", root.describe(), seed.describe());
      if (root.kind() == Kind::cut) {
        check(same_placement(seed.placement(), root.placement()), "backward: the gradient of {} is cut differently",
              root.describe());
        for (std::size_t s = 0; s < seed.parts().size(); ++s) {
          const int shard = root.placement()->slots()[s].shard;
          g.add_addend(shard, seed.parts()[s], root.placement()->rows_of(shard) > 0);
        }
      } else {
        g.add_single(seed.array());
      }
    }
    if (!pass_.at) pass_.at = root.placement();
    roots_.push_back({{meta}, std::move(g)});
    discover(roots_.back().first);
  }

  // If it throws, no leaf keeps a part of this pass.
  void run() try {
    for (auto& [edge, gradient] : roots_) deliver(edge, std::move(gradient));
    roots_.clear();
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top().second;
      ready_.pop();
      std::vector<Gradient> grads = std::move(visits_.at(node.get()).outputs);
      std::vector<Gradient> input_grads = run_node(*node, grads);
      grads.clear();
      for (std::size_t i = 0; i < node->inputs.size(); ++i) deliver(node->inputs[i], std::move(input_grads[i]));
      node->clear();
    }
    for (const auto& observer : pass_.observers) observer->end_backward(pass_.sync);
  } catch (...) {
    for (const auto& [leaf, visit] : leaves_) leaf->abandon(pass_);
    throw;
  }

 private:
  // Counts, for every node and leaf that can be reached, how many gradients it will get.
  void discover(const Edge& first) {
    std::vector<Edge> pending{first};
    while (!pending.empty()) {
      const Edge edge = std::move(pending.back());
      pending.pop_back();
      if (!edge.target) continue;
      if (!edge.target->node) {
        if (leaves_[edge.target].missing++ == 0) edge.target->reached(pass_);
        continue;
      }
      Node& node = *edge.target->node;
      auto [it, is_new] = visits_.try_emplace(&node);
      ++it->second.missing;
      if (!is_new) continue;
      check(!node.used(), "backward: the history of {} was used by an earlier backward()", node.name);
      if (node.at && (!pass_.at || (!pass_.at->exchange() && node.at->exchange()))) pass_.at = node.at;
      it->second.outputs.resize(static_cast<std::size_t>(node.outputs));
      for (const Edge& input : node.inputs) pending.push_back(input);
    }
  }

  void deliver(const Edge& edge, Gradient gradient) {
    if (!edge.target) return;
    if (!edge.target->node) {
      LeafVisit& leaf = leaves_.at(edge.target);
      leaf.gradient.add(std::move(gradient));
      if (--leaf.missing == 0 && leaf.gradient.defined()) {
        edge.target->accumulate(pass_, std::exchange(leaf.gradient, {}));
      }
      return;
    }
    const std::shared_ptr<Node>& node = edge.target->node;
    Visit& visit = visits_.at(node.get());
    visit.outputs[static_cast<std::size_t>(edge.target->output)].add(std::move(gradient));
    if (--visit.missing == 0) ready_.emplace(node->order, node);
  }

  std::vector<Gradient> run_node(const Node& node, std::span<Gradient> grads) {
    std::vector<Gradient> dx(node.inputs.size());
    // Otherwise no root depends on what went through here.
    if (std::ranges::any_of(grads, &Gradient::defined)) {
      node.mix ? node.mix(node, pass_, grads, dx) : run_parts(node, grads[0], dx);
    }
    return dx;
  }

  Arrays run_part(const Node& node, std::size_t part, int lane, int shard, const Array& dy) {
    ops::ShardScope scope(lane);
    Arrays found = node.parts[part]({node, pass_, shard}, dy);
    check(found.size() == node.inputs.size(), "backward of {}: {} gradients, expected one for each of {} inputs", node.name,
          found.size(), node.inputs.size());
    return found;
  }

  void run_parts(const Node& node, Gradient& dy, std::span<Gradient> dx) {
    if (node.kind == Kind::cut) {
      const auto& slots = node.at->slots();
      for (std::size_t s = 0; s < slots.size(); ++s) {
        const int shard = slots[s].shard;
        const Array g = dy.addend(shard);
        if (!g.defined()) continue;
        const bool counts = node.at->rows_of(shard) > 0;
        Arrays found = run_part(node, s, shard, counts ? shard : -1, g);
        for (std::size_t i = 0; i < dx.size(); ++i) {
          if (node.needs(i)) dx[i].add_addend(shard, found[i], counts);
        }
      }
      return;
    }
    const auto part_of = [&](const Array& g) {
      const auto at = std::ranges::find(node.devices, g.device());
      return static_cast<std::size_t>(at == node.devices.end() ? 0 : at - node.devices.begin());
    };
    for (const Gradient::Addend& a : dy.addends) {
      Arrays found = run_part(node, part_of(a.sum.value), a.shard, -1, a.sum.value);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        if (node.needs(i)) dx[i].add_addend(a.shard, found[i], a.counts);
      }
    }
    if (dy.seed) {
      if (node.kind == Kind::whole) {
        dy.add_single(dy.seed->make(node.devices[0]));
      } else {
        for (Device device : node.devices) dy.add_part(dy.seed->make(device));
      }
      dy.seed.reset();
    }
    for (const GradientSum& part : dy.parts) {
      Arrays found = run_part(node, part_of(part.value), -1, -1, part.value);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        if (node.needs(i)) dx[i].add_part(found[i]);
      }
    }
    if (dy.single.defined()) {
      const Array g = ops::to_device(dy.single.value, node.devices[part_of(dy.single.value)], {.non_blocking = true});
      // In per_shard(): what is not that shard's own has a gradient from each shard.
      const int shard = node.kind == Kind::whole && node.at ? node.at->slots()[0].shard : -1;
      const bool counts = shard < 0 || node.at->rows_of(shard) > 0;
      Arrays found = run_part(node, part_of(g), shard < 0 ? g.shard() : shard, counts ? shard : -1, g);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        if (!node.needs(i)) continue;
        if (shard >= 0 && !node.inputs[i].of_shard) {
          dx[i].add_addend(shard, found[i], counts);
        } else {
          dx[i].add_single(found[i]);
        }
      }
    }
  }

  const BackwardOptions& options_;
  BackwardPass pass_;
  std::vector<std::pair<Edge, Gradient>> roots_;
  std::unordered_map<Node*, Visit> visits_;
  std::map<std::shared_ptr<GradMeta>, LeafVisit> leaves_;
  std::priority_queue<std::pair<std::uint64_t, std::shared_ptr<Node>>> ready_;
};

}  // namespace

void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options) {
  check(roots.size() == seeds.size(), "backward: {} roots and {} gradients", roots.size(), seeds.size());
  NoGradGuard no_grad;
  Walk walk(options);
  for (std::size_t i = 0; i < roots.size(); ++i) walk.add_root(roots[i], seeds[i]);
  walk.run();
}

}  // namespace lockstep
