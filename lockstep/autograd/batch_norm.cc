#include "lockstep/autograd/batch_norm.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& residual,
                        const BatchNormOptions& options, std::vector<ops::BatchStats>* used) {
  return lift("batch norm", place_rows("batch_norm", {x, residual}, {gamma, beta}), {x, gamma, beta, residual},
              [&](const Arrays& in) -> Lifted {
                ops::BatchStats stats = ops::batch_norm_stats(in[0]);
                Array y = ops::batch_norm(in[0], stats, in[1], in[2], in[3], {options.eps, options.relu});
                if (used) used->push_back(stats);
                return {y,
                        [x = SavedArray(in[0]), gamma = SavedArray(in[1]), mask = SavedArray(options.relu, y), stats,
                         eps = options.eps](const PartPass& p, const Array& dy) -> Arrays {
                          const Array &in = x.get(p.name()), &out = mask.get(p.name());
                          auto sums = ops::batch_norm_backward_stats(dy, in, out, stats, eps);
                          ops::BatchNormGrads grads;
                          if (p.needs(0) || p.needs(3)) {
                            grads = ops::batch_norm_backward_data(dy, in, out, stats, eps, gamma.get(p.name()), sums,
                                                                  p.needs(3));
                          }
                          return {grads.x, sums.g_xhat, sums.g, grads.residual};
                        }};
              });
}

Tensor batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                       const Tensor& running_var, const Tensor& residual, const BatchNormOptions& options) {
  const Placed placed = place_rows("batch_norm", {x, residual}, {gamma, beta, running_mean, running_var});
  const auto part = [&](const Arrays& in) -> Lifted {
    // The variance is M2 / n, so with n = 1, M2 is the variance itself.
    Array y = ops::batch_norm(in[0], {1, in[4], in[5]}, in[1], in[2], in[3], {options.eps, options.relu});
    return {
        y,
        [x = SavedArray(in[0]), gamma = SavedArray(in[1]), mask = SavedArray(options.relu, y), mean = SavedArray(in[4]),
         var = SavedArray(in[5]), eps = options.eps](const PartPass& p, const Array& dy) -> Arrays {
          const Array &in = x.get(p.name()), &out = mask.get(p.name());
          const ops::BatchStats stats{1, mean.get(p.name()), var.get(p.name())};
          ops::BatchNormSums sums;
          if (p.needs(1) || p.needs(2)) sums = ops::batch_norm_backward_stats(dy, in, out, stats, eps);
          ops::BatchNormGrads grads;
          if (p.needs(0) || p.needs(3)) {
            // The statistics do not depend on x, so no gradient flows through them.
            ops::BatchNormSums none{ops::empty_like(stats.mean), ops::empty_like(stats.mean)};
            ops::fill_(none.g, 0);
            ops::fill_(none.g_xhat, 0);
            grads = ops::batch_norm_backward_data(dy, in, out, stats, eps, gamma.get(p.name()), none, p.needs(3));
          }
          return {grads.x, sums.g_xhat, sums.g, grads.residual, Array(), Array()};
        }};
  };
  return lift("batch norm", placed, {x, gamma, beta, residual, running_mean, running_var}, part, [&] {
    return OpTraits{"batch_norm", {{"eps", options.eps}, {"relu", std::int64_t{options.relu}}}};
  });
}

Tensor batch_norm_synchronized(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                               const BatchNormOptions& options, ops::BatchStats* used) {
  const Placed placed = place_rows("batch_norm", {x, residual}, {weight, bias});
  if (placed.kind != Kind::cut) {
    std::vector<ops::BatchStats> stats;
    Tensor y = batch_norm_train(x, weight, bias, residual, options, &stats);
    if (used) *used = stats[0];
    return y;
  }
  const auto& at = placed.at;
  const auto& slots = at->slots();
  const Tensor gamma = replicate(weight, at), beta = replicate(bias, at);
  std::vector<ops::BatchStats> parts(at->rows().size());
  for (std::size_t s = 0; s < slots.size(); ++s) {
    ops::ShardScope scope(slots[s].shard);
    parts[static_cast<std::size_t>(slots[s].shard)] = ops::batch_norm_stats(x->parts[s]);
  }
  parts = gather_stats(*at, parts, x->cut.outer * x->cut.inner * x.size(2) * x.size(3));

  struct Part {
    SavedArray x, gamma, mask;
    ops::BatchStats stats;
  };
  std::vector<Part> saved;
  std::vector<Array> ys;
  for (std::size_t s = 0; s < slots.size(); ++s) {
    const auto [shard, device] = slots[s];
    ops::ShardScope scope(shard);
    const Array& in = x->parts[s];
    ops::BatchStats stats = ops::merge_batch_stats(parts, device, false);
    const Array added = residual.defined() ? residual->parts[s] : Array();
    ys.push_back(ops::batch_norm(in, stats, gamma->on(device), beta->on(device), added, {options.eps, options.relu}));
    saved.push_back({in, gamma->on(device), {options.relu, ys.back()}, stats});
  }
  if (used) *used = saved[0].stats;
  return record_mix(
      "synchronized batch norm", {x, gamma, beta, residual}, cut_tensor(at, x->cut, std::move(ys)),
      [at, saved = std::move(saved), eps = options.eps, cut = x->cut, shape = x.shape(), dtype = x.dtype()](
          const Node& node, const BackwardPass&, std::span<const Gradient> grads, std::span<Gradient> dx) {
        const auto& slots = at->slots();
        std::vector<Array> g(at->rows().size()), g_xhat(g.size());
        // A shard that the roots do not depend on has no gradient of its own, but its x affected the statistics.
        std::vector<Array> dy = cut_parts(grads[0], *at, cut, shape, dtype);
        for (std::size_t s = 0; s < slots.size(); ++s) {
          const auto [shard, device] = slots[s];
          const auto& [x, gamma, mask, stats] = saved[s];
          const Array& in = x.get(node.name);
          ops::ShardScope scope(shard);
          dy[s] = ops::to_layout(dy[s], in.layout());
          const auto sums = ops::batch_norm_backward_stats(dy[s], in, mask.get(node.name), stats, eps);
          g[static_cast<std::size_t>(shard)] = sums.g;
          g_xhat[static_cast<std::size_t>(shard)] = sums.g_xhat;
          const bool counts = at->rows_of(shard) > 0;
          if (node.needs(1)) dx[1].add_addend(shard, sums.g_xhat, counts);
          if (node.needs(2)) dx[2].add_addend(shard, sums.g, counts);
        }
        if (!node.needs(0) && !node.needs(3)) return;
        exchange_leaves(at->all_ranks(), g, "batch norm gradients");
        exchange_leaves(at->all_ranks(), g_xhat, "batch norm gradients");
        for (std::size_t s = 0; s < slots.size(); ++s) {
          const auto [shard, device] = slots[s];
          const auto& [x, gamma, mask, stats] = saved[s];
          ops::ShardScope scope(shard);
          const ops::BatchNormSums all{ops::tree_sum(g, device), ops::tree_sum(g_xhat, device)};
          const auto grad = ops::batch_norm_backward_data(dy[s], x.get(node.name), mask.get(node.name), stats, eps,
                                                          gamma.get(node.name), all, node.needs(3));
          const bool counts = at->rows_of(shard) > 0;
          if (node.needs(0)) dx[0].add_addend(shard, grad.x, counts);
          if (node.needs(3)) dx[3].add_addend(shard, grad.residual, counts);
        }
      });
}

std::vector<ops::BatchStats> gather_stats(const Placement& batch, std::span<const ops::BatchStats> parts,
                                          std::int64_t values) {
  const Placement& at = batch.all_ranks();
  if (!at.exchange()) return {parts.begin(), parts.end()};
  std::vector<std::vector<Array>> arrays(parts.size());
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (parts[s].mean.defined()) arrays[s] = {parts[s].mean, parts[s].m2};
  }
  arrays = at.exchange()->gather(std::move(arrays), "batch norm statistics");
  std::vector<ops::BatchStats> all(arrays.size());
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (!arrays[s].empty()) all[s] = {at.rows()[s] * values, arrays[s][0], arrays[s][1]};
  }
  return all;
}

}  // namespace lockstep
