#include "lockstep/autograd/backward.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <ranges>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/grad.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/recomputation.h"
#include "lockstep/autograd/tensor_hooks.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/origin.h"

namespace lockstep {
namespace {

// Counts the passes of all threads, so that each has a unique number.
std::atomic<std::uint64_t> passes{0};

struct PendingLeaf {
  int missing = 0;    // edges from nodes that the walk runs, and from roots, whose gradient has not arrived yet
  int by_shard = 0;   // edges whose gradient may have addends of shards
  bool once = false;  // whether any other edge delivers a gradient that counts once
  Gradient gradient;
  // Number of gradients that have arrived, by shard. A shard's addend is complete when by_shard edges have delivered.
  SmallVector<int, 8> arrived;
};

class BackwardWalk {
 public:
  BackwardWalk(const BackwardOptions& options, bool retain_graph) : options_(options), retain_graph_(retain_graph) {
    pass_.number = ++passes;
    pass_.sync = options.sync;
    pass_.accumulates = options.share != 1 || !options.sync;
    if (!options.inputs.set()) return;
    check(!options.inputs.leaves().empty(), "backward: inputs is empty, expected the leaves that get gradients");
    for (const Tensor& leaf : options.inputs.leaves()) {
      const auto& meta = leaf->grad;
      check(meta != nullptr, "backward: {} of inputs requires no gradient", leaf);
      check(!meta->node, "backward: {} of inputs is a result with a history, expected a leaf or a parameter", leaf);
      wanted_.insert(meta.get());
    }
  }

  // Gives edges their targets back if leaves were captured or the graph is kept, even if add_root() throws.
  ~BackwardWalk() {
    put_back();
    if (retain_graph_ || !captured_leaves_.empty()) restore();
  }
  BackwardWalk(const BackwardWalk&) = delete;
  BackwardWalk& operator=(const BackwardWalk&) = delete;

  // Sends the gradient of `input` to `to`, a leaf with the same properties. Call it before add_root().
  void capture(const Tensor& input, const Tensor& to) {
    const auto& meta = input->grad;
    check(meta != nullptr, "grad: the input {} requires no gradient", input);
    if (meta->node) {
      captured_nodes_[meta->node.get()].emplace_back(meta->output, to->grad);
    } else {
      to->grad->hooks = meta->hooks;
      captured_leaves_[meta.get()] = to->grad;
      wanted_.insert(to->grad.get());
    }
  }

  void add_root(const Tensor& root, const Tensor& seed) {
    const auto& meta = captured(root->grad);
    check(meta != nullptr, "backward: no input of {} requires a gradient", root);
    Gradient g;
    if (!seed.defined()) {
      check(root.numel() == 1 && root->kind != Kind::cut,
            "backward: {} is not a scalar: take its sum() or mean(), or give its gradient", root);
      g.seed = Gradient::Seed{options_.share, options_.scales, root.detach()};
    } else {
      check(seed->kind == root->kind && seed.shape() == root.shape() && seed.dtype() == root.dtype(),
            "backward: the gradient of {} is {}, expected one of the same kind, shape and type", root, seed);
      check(options_.share == 1 && options_.scales.empty(),
            "backward: share or scales beside the gradient of {}, expected none: multiply the gradient by them", root);
      if (root->kind == Kind::cut) {
        check(same_placement(seed->at, root->at),
              "backward: the gradient of {} is cut differently, expected the same shards in the same places", root);
        for (std::size_t s = 0; s < seed->parts.size(); ++s) {
          const int shard = root->at->slots()[s].shard;
          g.add_addend(shard, seed->parts[s], root->at->rows_of(shard) > 0);
        }
      } else {
        g.add_single(seed->array());
      }
    }
    note_batch(root->at);
    for (const Array& part : root->parts) {
      if (part.resource()) losses_.push_back(part.resource());
    }
    roots_.push_back({{meta}, std::move(g)});
    discover(roots_.back().first);
  }

  // Tells the leaves about this pass. Call it after all roots, because a later root may decide the batch of the pass.
  void begin() {
    for (const auto& leaf : found_leaves_) leaf->reached(pass_);
  }

  // If it throws, no leaf keeps a part of this pass.
  void run() try {
    pass_.failures = std::make_shared<FailureGroup>(std::move(losses_));
    const FailureScope scope(pass_.failures);
    const ops::OriginScope of_no_node({});  // for trees of gradients
    // Consumers come before what they consume.
    std::ranges::sort(nodes_, std::greater(), [](const std::shared_ptr<Node>& node) { return node->order; });
    if (selects()) prune();
    count_edges();
    for (auto& [edge, gradient] : roots_) gradient_of(edge).add(std::move(gradient));
    for (const auto& [edge, gradient] : roots_) {
      if (!edge.target->node) settle(edge.target);
    }
    roots_.clear();
    for (std::size_t i = 0; i < nodes_.size();) {
      if (!unused_.contains(nodes_[i].get())) recompute(*nodes_[i]);
      // Nodes that do not mix shards run one shard after the other, while that shard's memory is still in the cache.
      std::size_t end = i;
      while (end < nodes_.size() && !nodes_[end]->recomputation && is_cut(*nodes_[end]) &&
             nodes_[end]->at == nodes_[i]->at && !captured_nodes_.contains(nodes_[end].get()) &&
             !hooked_.contains(nodes_[end].get())) {
        ++end;
      }
      if (end == i) {
        run_hooks(*nodes_[i]);
        deliver_captured(*nodes_[i]);
      }
      if (unused_.contains(nodes_[i].get())) {
        ++i;
        continue;
      }
      if (end == i && is_cut(*nodes_[i])) ++end;
      if (end > i) {
        run_cut(std::span(nodes_).subspan(i, end - i));
      } else {
        end = i + 1;
        run_node(*nodes_[i]);
      }
      for (; i < end; ++i) finish(*nodes_[i]);
    }
    for (const auto& observer : pass_.observers) observer->end_backward(pass_);
    for (const auto& [leaf, visit] : leaves_) leaf->passed(pass_);
  } catch (...) {
    for (const auto& [leaf, visit] : leaves_) leaf->abandon(pass_);
    restore();
    // A node whose backward function has run for some shards cannot run again for any shard.
    for (const auto& node : nodes_) {
      if (std::ranges::any_of(node->parts, [](const PartBackward& part) { return !part; })) node->clear();
    }
    throw;
  }

 private:
  static bool is_cut(const Node& node) { return node.kind == Kind::cut && !node.has_mix(); }

  // Origin of the backward function of a node and of the sums of its results: they do not depend on the layout.
  static ops::Origin origin_of(const Node& node) { return {node.module, ops::Origin::Direction::backward}; }

  static void check_history(const Node& node) {
    check(
        !node.used(),
        "backward: the history of {} was used by an earlier backward(): compute the loss again, add the losses before "
        "one backward(), or keep the graph by retain_graph in the first one",
        node.name);
  }

  bool selects() const { return !wanted_.empty() || !captured_nodes_.empty(); }
  bool is_wanted(const GradMeta& leaf) const { return !selects() || wanted_.contains(&leaf); }

  // Returns the meta that gets the gradient of `target`: its capture() leaf, or `target` itself.
  const std::shared_ptr<GradMeta>& captured(const std::shared_ptr<GradMeta>& target) const {
    const auto at = captured_leaves_.find(target.get());
    return at == captured_leaves_.end() ? target : at->second;
  }

  // Called when all consumers of the outputs of the node have run.
  void run_hooks(const Node& node) {
    const auto at = hooked_.find(&node);
    if (at == hooked_.end()) return;
    for (const auto& meta : at->second) {
      meta->hooks->run(gradients_.at(&node)[static_cast<std::size_t>(meta->output)], pass_);
    }
  }
  void deliver_captured(const Node& node) {
    const auto at = captured_nodes_.find(&node);
    if (at == captured_nodes_.end()) return;
    for (const auto& [output, to] : at->second) {
      Gradient gradient = gradients_.at(&node)[static_cast<std::size_t>(output)];
      if (!gradient.defined()) continue;
      // `to` does not own the arrays, because the backward function of the node reads them, too.
      gradient.single.own = false;
      for (Accumulator& part : gradient.parts) part.own = false;
      for (Gradient::Addend& addend : gradient.addends) addend.sum.own = false;
      to->accumulate(pass_, std::move(gradient));
    }
  }

  // Gives edges their targets back, because a later pass may need other gradients.
  void restore() {
    for (auto& [edge, target] : std::views::reverse(pruned_)) edge->target = std::move(target);
    pruned_.clear();
  }

  // Keeps only the nodes on the way to a wanted leaf. Cuts their edges to other nodes and leaves, as if these needed no
  // gradient.
  void prune() {
    std::unordered_set<const Node*> useful;
    const auto leads = [&](const Edge& edge) {
      if (!edge.target) return false;
      const Node* const node = edge.target->node.get();
      return node ? useful.contains(node) || captured_nodes_.contains(node) : is_wanted(*edge.target);
    };
    for (const auto& node : nodes_ | std::views::reverse) {
      if (std::ranges::any_of(node->inputs, leads)) useful.insert(node.get());
    }
    std::erase_if(roots_, [&](const auto& root) { return !leads(root.first); });
    check(!roots_.empty() || !options_.inputs.set(),
          "backward: the loss depends on none of the {} tensors of inputs (the first is {})", wanted_.size(),
          options_.inputs.set() ? options_.inputs.leaves()[0].describe() : "");
    // The walk ends at a captured node that leads to no wanted leaf: the node does not run.
    for (const auto& node : nodes_) {
      if (!useful.contains(node.get()) && captured_nodes_.contains(node.get())) unused_.insert(node.get());
    }
    const auto is_left = [&](const auto& node) { return useful.contains(node.get()) || unused_.contains(node.get()); };
    for (const auto& node : nodes_) {
      if (!is_left(node)) gradients_.erase(node.get());
    }
    std::erase_if(nodes_, [&](const auto& node) { return !is_left(node); });
    for (const auto& node : nodes_) {
      if (unused_.contains(node.get())) continue;
      check_history(*node);
      for (Edge& edge : node->inputs) {
        if (edge.target && !leads(edge)) pruned_.emplace_back(&edge, std::exchange(edge.target, nullptr));
      }
    }
  }

  // Finds the nodes and leaves that can be reached.
  void discover(const Edge& first) {
    std::vector<Edge> pending{first};
    while (!pending.empty()) {
      const Edge edge = std::move(pending.back());
      pending.pop_back();
      if (!edge.target) continue;
      if (!edge.target->node) {
        if (is_wanted(*edge.target) && leaves_[edge.target].missing++ == 0) {
          held_.emplace_back(edge.target->use, "backward: a parameter or leaf of this loss");
          found_leaves_.push_back(edge.target);
        }
        continue;
      }
      const std::shared_ptr<Node>& node = edge.target->node;
      if (edge.target->hooks) {
        auto& hooked = hooked_[node.get()];
        if (std::ranges::find(hooked, edge.target) == hooked.end()) hooked.push_back(edge.target);
      }
      auto [it, is_new] = gradients_.try_emplace(node.get());
      if (!is_new) continue;
      // The walk may end at a captured node, whose history is then not needed.
      if (!captured_nodes_.contains(node.get())) check_history(*node);
      note_batch(node->at);
      it->second.resize(static_cast<std::size_t>(node->outputs));
      nodes_.push_back(node);
      for (Edge& input : node->inputs) {
        if (!captured_leaves_.empty() && input.target && captured(input.target) != input.target) {
          const std::shared_ptr<GradMeta> to = captured(input.target);
          pruned_.emplace_back(&input, std::exchange(input.target, to));
        }
        pending.push_back(input);
      }
    }
  }

  // Sets the batch of the pass: a batch that joins other processes, if there is one, otherwise the first batch.
  void note_batch(const std::shared_ptr<const Placement>& at) {
    if (!at || at == pass_.at) return;
    check(!at->lost_wrapper(),
          "backward: the DistributedDataParallel that cut a batch of this loss is gone, so its parameters' gradients "
          "would not be summed over the ranks: keep it in a variable until backward() is done");
    if (!pass_.at || (!pass_.at->joins_ranks() && at->joins_ranks())) {
      pass_.at = at;
      return;
    }
    check(!at->joins_ranks() || at->own_loss() == pass_.at->own_loss(),
          "backward: the loss depends on a batch of all ranks, as of loader.on(ddp), and on this rank's rows, as of "
          "ddp(rows): call backward() for the loss of each");
  }

  // Counts the edges to each leaf. Only operations on a batch give a gradient addends of shards. Nodes of parameters
  // alone, such as the nodes of a penalty on the weights, deliver gradients that count once.
  void count_edges() {
    std::unordered_set<const Node*> by_shard;
    for (const auto& [edge, gradient] : roots_) count_edge(edge, !gradient.addends.empty(), by_shard);
    for (const auto& node : nodes_) {
      if (unused_.contains(node.get())) continue;
      const bool of_shard = node->kind == Kind::whole && node->at;
      const bool batch = node->has_mix() || node->kind == Kind::cut || of_shard || by_shard.contains(node.get());
      for (const Edge& input : node->inputs) count_edge(input, batch, by_shard);
    }
  }
  void count_edge(const Edge& edge, bool batch, std::unordered_set<const Node*>& by_shard) {
    if (!edge.target) return;
    if (edge.target->node) {
      if (batch) by_shard.insert(edge.target->node.get());
    } else {
      PendingLeaf& leaf = leaves_.at(edge.target);
      leaf.by_shard += batch;
      leaf.once |= !batch;
    }
  }

  Gradient& gradient_of(const Edge& edge) {
    if (!edge.target->node) return leaves_.at(edge.target).gradient;
    return gradients_.at(edge.target->node.get())[static_cast<std::size_t>(edge.target->output)];
  }

  // Delivers one shard's gradient of an input. A leaf that has all of the shard's gradients takes their sum at once.
  void deliver_addend(const Node& node, const Edge& edge, int shard, const Array& g, bool counts) {
    if (!edge.target) return;
    {
      const ops::OriginScope origin(origin_of(node));
      gradient_of(edge).add_addend(shard, g, counts);
    }
    if (edge.target->node || !edge.target->takes_shards()) return;
    PendingLeaf& leaf = leaves_.at(edge.target);
    const auto place = static_cast<std::size_t>(shard);
    while (leaf.arrived.size() <= place) leaf.arrived.push_back(0);
    if (++leaf.arrived[place] < leaf.by_shard) return;
    // This shard waits for accumulate(): contributions that count once are added to its addend.
    if ((leaf.once || leaf.gradient.has_once()) && shard == edge.target->once_shard(pass_)) return;
    if (auto complete = leaf.gradient.take_addend(shard)) edge.target->accumulate_shard(pass_, *std::move(complete));
  }

  // Notes that one edge to a leaf has delivered everything. After the last edge, the leaf gets its gradient.
  void settle(const std::shared_ptr<GradMeta>& target) {
    PendingLeaf& leaf = leaves_.at(target);
    if (--leaf.missing > 0 || !leaf.gradient.defined()) return;
    if (target->hooks) target->hooks->run(leaf.gradient, pass_);
    target->accumulate(pass_, std::exchange(leaf.gradient, {}));
  }

  void finish(Node& node) {
    gradients_.erase(&node);
    for (const Edge& edge : node.inputs) {
      if (edge.target && !edge.target->node) settle(edge.target);
    }
    // A checkpoint computes the rest of a kept graph again, too: the graph then takes no more memory than before.
    if (!retain_graph_ || recomputed_.contains(&node)) node.clear();
    if (!retain_graph_) recomputed_.erase(&node);
  }

  // Gives the nodes of the node's checkpoint their backward functions. Their places in the walk, and so the order of
  // all sums, are those of a graph without checkpoints.
  void recompute(const Node& node) {
    // Once for each checkpoint in which the node was made.
    while (const std::shared_ptr<Recomputation> from = node.recomputation) {
      // The outermost checkpoint keeps its place here.
      for (auto& each : from->waiting()) {
        const std::size_t place = each->place;
        const Node* const key = each.get();
        recomputed_.try_emplace(key, Recomputed{std::move(each), from, place});
      }
      from->repeat();
    }
  }

  // Nodes that the walk has not consumed wait for their checkpoint again, and give the memory back.
  void put_back() {
    for (auto& [key, each] : recomputed_) {
      each.node->clear();
      each.node->recomputation = std::move(each.from);
      each.node->place = each.place;
    }
    recomputed_.clear();
  }

  Arrays run_part(Node& node, std::size_t part, int lane, int shard, const Array& dy) {
    ops::ShardScope scope(lane);
    const ops::OriginScope origin(origin_of(node));
    Arrays found = node.parts[part]({node, pass_, shard}, dy);
    check(found.size() == node.inputs.size(), "backward of {}: {} gradients, expected one for each of {} inputs",
          node.name, found.size(), node.inputs.size());
    return found;
  }

  void run_cut(std::span<const std::shared_ptr<Node>> nodes) {
    const Placement& at = *nodes[0]->at;
    // Goes by turns, so that each device gets the tasks of one shard after the other, and no device waits while the
    // host describes the tasks of other devices.
    for (const std::vector<std::size_t>& slots : at.turns()) {
      for (const auto& node : nodes) {
        Gradient& dy = gradients_.at(node.get())[0];
        for (std::size_t s : slots) {
          const int shard = at.slots()[s].shard;
          const auto addend = dy.take_addend(shard);
          // Without an addend, no root depends on this part.
          if (!addend) continue;
          const bool counts = at.rows_of(shard) > 0;
          Arrays found = run_part(*node, s, shard, counts ? shard : -1, addend->sum.value);
          if (!retain_graph_) node->parts[s] = nullptr;
          for (std::size_t i = 0; i < node->inputs.size(); ++i)
            deliver_addend(*node, node->inputs[i], shard, found[i], counts);
        }
      }
    }
  }

  void run_node(Node& node) {
    std::vector<Gradient>& grads = gradients_.at(&node);
    if (std::ranges::none_of(grads, &Gradient::defined)) return;
    std::vector<Gradient> dx(node.inputs.size());
    const ops::OriginScope origin(origin_of(node));
    node.mix ? run_mix(node, grads, dx) : run_parts(node, grads[0], dx);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (node.inputs[i].target && dx[i].defined()) gradient_of(node.inputs[i]).add(std::move(dx[i]));
    }
  }

  // A whole tensor that is used in per_shard() has a gradient from each shard. The backward function is linear in the
  // gradient, so it runs once for each shard.
  void run_mix(Node& node, std::span<Gradient> grads, std::span<Gradient> dx) {
    if (node.kind != Kind::whole) return node.mix(node, pass_, grads, dx);
    std::map<int, bool> shards;
    for (const Gradient& g : grads) {
      for (const Gradient::Addend& a : g.addends) shards[a.shard] = a.counts;
    }
    for (const auto& [shard, counts] : shards) {
      std::vector<Gradient> of_shard(grads.size());
      for (std::size_t i = 0; i < grads.size(); ++i) {
        if (const auto addend = grads[i].take_addend(shard)) of_shard[i].add_single(addend->sum.value);
      }
      ops::ShardScope scope(shard);
      run_mix_of_shard(node, of_shard, dx, shard, counts);
    }
    if (std::ranges::none_of(grads, &Gradient::defined)) return;
    const int own = node.at ? node.at->slots()[0].shard : -1;
    run_mix_of_shard(node, grads, dx, own, own < 0 || node.at->rows_of(own) > 0);
  }

  // If shard < 0, the gradient counts once.
  void run_mix_of_shard(Node& node, std::span<const Gradient> grads, std::span<Gradient> dx, int shard, bool counts) {
    std::vector<Gradient> found(dx.size());
    node.mix(node, pass_, grads, found);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (shard >= 0 && !node.inputs[i].of_shard && found[i].has_once()) {
        const Array g = found[i].single.defined() ? found[i].single.value : found[i].parts[0].value;
        found[i].single = {};
        found[i].parts.clear();
        found[i].add_addend(shard, g, counts);
      }
      if (found[i].defined()) dx[i].add(std::move(found[i]));
    }
  }

  void run_parts(Node& node, Gradient& dy, std::span<Gradient> dx) {
    const auto has_part = [&](const Array& g) {
      return std::ranges::find(node.devices, g.device()) != node.devices.end();
    };
    const auto part_of = [&](const Array& g) {
      return static_cast<std::size_t>(std::ranges::find(node.devices, g.device()) - node.devices.begin());
    };
    const auto moved = [&](const Array& g) {
      return has_part(g) ? g : ops::to_device(g, node.devices[0], {.non_blocking = true});
    };
    // Replicas are equal, so a replica on a foreign device is used only if none is on a device of the node.
    if (std::ranges::none_of(dy.parts, has_part, &Accumulator::value) && !dy.parts.empty()) {
      dy.add_single(dy.parts[0].value);
      dy.parts.clear();
    }
    std::erase_if(dy.parts, [&](const Accumulator& part) { return !has_part(part.value); });
    for (const Gradient::Addend& a : dy.addends) {
      const Array g = moved(a.sum.value);
      Arrays found = run_part(node, part_of(g), a.shard, -1, g);
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
    for (const Accumulator& part : dy.parts) {
      Arrays found = run_part(node, part_of(part.value), -1, -1, part.value);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        if (node.needs(i)) dx[i].add_part(found[i]);
      }
    }
    if (dy.single.defined()) {
      const Array g = moved(dy.single.value);
      // In per_shard(), an input that does not belong to the shard has a gradient from each shard.
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
  const bool retain_graph_;
  BackwardPass pass_;
  std::vector<std::pair<Edge, Gradient>> roots_;
  std::vector<Resource> losses_;  // the roots' data
  std::vector<std::shared_ptr<Node>> nodes_;
  std::unordered_map<const Node*, std::vector<Gradient>> gradients_;  // of the node's outputs
  std::map<std::shared_ptr<GradMeta>, PendingLeaf> leaves_;
  std::vector<std::shared_ptr<GradMeta>> found_leaves_;  // in the order of the graph, which all ranks share
  std::deque<InUse::Scope> held_;                        // of the leaves
  // With BackwardOptions::inputs or grad(): the leaves that get gradients.
  std::unordered_set<const GradMeta*> wanted_;
  // With grad(): the leaves that take the gradients of captured leaves, and of captured outputs of nodes. Captured
  // nodes that lead to no wanted leaf are unused_: they do not run.
  std::unordered_map<const GradMeta*, std::shared_ptr<GradMeta>> captured_leaves_;
  std::unordered_map<const Node*, std::vector<std::pair<int, std::shared_ptr<GradMeta>>>> captured_nodes_;
  std::unordered_set<const Node*> unused_;
  // Results with hooks, by node.
  std::unordered_map<const Node*, std::vector<std::shared_ptr<GradMeta>>> hooked_;
  std::vector<std::pair<Edge*, std::shared_ptr<GradMeta>>> pruned_;
  // Nodes that got their backward functions from a checkpoint and still have them, or will get them again.
  struct Recomputed {
    std::shared_ptr<Node> node;
    std::shared_ptr<Recomputation> from;
    std::size_t place;
  };
  std::unordered_map<const Node*, Recomputed> recomputed_;
};

}  // namespace

void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options) {
  backward(roots, seeds, options, false);
}

void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options,
              bool retain_graph) {
  check(roots.size() == seeds.size(), "backward: {} roots and {} gradients, expected one gradient for each root",
        roots.size(), seeds.size());
  check(!CheckpointScope::is_active(),
        "backward: called in the function of a checkpoint, which is called twice and would add its gradients twice: "
        "expected grad()");
  NoGradGuard no_grad;
  BackwardWalk walk(options, retain_graph);
  for (std::size_t i = 0; i < roots.size(); ++i) walk.add_root(roots[i], seeds[i]);
  walk.begin();
  walk.run();
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs, std::span<const Tensor> seeds,
                         bool retain_graph) {
  check(!outputs.empty() && !inputs.empty(), "grad: {} outputs and {} inputs, expected at least one of each",
        outputs.size(), inputs.size());
  check(outputs.size() == seeds.size(), "grad: {} outputs and {} gradients of them, expected as many", outputs.size(),
        seeds.size());
  NoGradGuard no_grad;
  const BackwardOptions options;
  BackwardWalk walk(options, retain_graph);
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    const auto before = inputs.first(leaves.size());
    const auto same = std::ranges::find_if(before, [&](const Tensor& other) { return other->grad == input->grad; });
    if (same != before.end() && input.requires_grad()) {  // the same input was given before
      leaves.push_back(leaves[static_cast<std::size_t>(same - before.begin())]);
      continue;
    }
    leaves.push_back(input.detach());
    leaves.back().set_requires_grad(true);
    walk.capture(input, leaves.back());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) walk.add_root(outputs[i], seeds[i]);
  walk.begin();
  walk.run();
  std::vector<Tensor> found;
  for (const Tensor& leaf : leaves) found.push_back(leaf.grad());
  return found;
}

}  // namespace lockstep
