#include "lockstep/ops/norm.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& residual,
                        const BatchNormOptions& options, ops::BatchStats* used) {
  ops::ShardScope scope(shard_of({x}));
  ops::BatchStats stats = ops::batch_norm_stats(x.detach());
  Tensor y = ops::batch_norm(x.detach(), stats, gamma.detach(), beta.detach(), residual.detach(),
                             {options.eps, options.relu});
  if (used) *used = stats;
  return record("batch norm", {x, gamma, beta, residual}, y,
                [in = SavedTensor(x), g = SavedTensor(gamma), mask = SavedTensor(options.relu, y), stats,
                 eps = options.eps](const Node& node, const Tensor& dy) {
                  const Tensor &saved = in.get(node.name), &out = mask.get(node.name);
                  auto sums = ops::batch_norm_backward_stats(dy, saved, out, stats, eps);
                  ops::BatchNormGrads grads;
                  if (node.needs(0) || node.needs(3)) {
                    grads = ops::batch_norm_backward_data(dy, saved, out, stats, eps, g.get(node.name), sums,
                                                          node.needs(3));
                  }
                  return std::vector<Tensor>{grads.x, sums.g_xhat, sums.g, grads.residual};
                });
}

Tensor batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                       const Tensor& running_var, const Tensor& residual, const BatchNormOptions& options) {
  ops::ShardScope scope(shard_of({x}));
  // M2 / n with n = 1: the variance itself.
  Tensor y = ops::batch_norm(x.detach(), {1, running_mean.detach(), running_var.detach()}, gamma.detach(), beta.detach(),
                             residual.detach(), {options.eps, options.relu});
  return record("batch norm", {x, gamma, beta, residual}, y,
                [in = SavedTensor(x), g = SavedTensor(gamma), mask = SavedTensor(options.relu, y),
                 mean = SavedTensor(running_mean), var = SavedTensor(running_var),
                 eps = options.eps](const Node& node, const Tensor& dy) {
                  const Tensor &saved = in.get(node.name), &out = mask.get(node.name);
                  const ops::BatchStats stats{1, mean.get(node.name), var.get(node.name)};
                  ops::BatchNormSums sums;
                  if (node.needs(1) || node.needs(2)) {
                    sums = ops::batch_norm_backward_stats(dy, saved, out, stats, eps);
                  }
                  ops::BatchNormGrads grads;
                  if (node.needs(0) || node.needs(3)) {
                    // The statistics do not depend on x: nothing flows back through them.
                    ops::BatchNormSums none{ops::empty_like(stats.mean), ops::empty_like(stats.mean)};
                    ops::fill_(none.g, 0);
                    ops::fill_(none.g_xhat, 0);
                    grads = ops::batch_norm_backward_data(dy, saved, out, stats, eps, g.get(node.name), none,
                                                          node.needs(3));
                  }
                  return std::vector<Tensor>{grads.x, sums.g_xhat, sums.g, grads.residual};
                });
}

std::vector<Tensor> batch_norm_synchronized(std::span<const Tensor> shards, std::span<const Tensor> gammas,
                                            std::span<const Tensor> betas, std::span<const Tensor> residuals,
                                            const BatchNormOptions& options, std::vector<ops::BatchStats>* used,
                                            std::shared_ptr<ShardExchange> exchange) {
  std::size_t count = shards.size();
  // parts[s] is shard s's: the tree is over shard numbers.
  std::size_t slots = exchange ? exchange->counts().size() : 0;
  for (const Tensor& x : shards) slots = std::max(slots, static_cast<std::size_t>(std::max(x.shard(), 0)) + 1);
  auto slot = [&shards](std::size_t i) { return static_cast<std::size_t>(std::max(shards[i].shard(), 0)); };
  std::vector<ops::BatchStats> parts(slots);
  std::vector<std::size_t> at(count);
  for (std::size_t i = 0; i < count; ++i) {
    ops::ShardScope scope(shards[i].shard());
    at[i] = slot(i);
    check(!parts[at[i]].mean.defined(), "batch_norm: two inputs are shard {}, expected one of each", at[i]);
    parts[at[i]] = ops::batch_norm_stats(shards[i].detach());
  }
  if (exchange) parts = gather_stats(*exchange, parts, shards[0].size(2) * shards[0].size(3));
  std::vector<Tensor> inputs, outputs, in, gamma, mask;
  std::vector<ops::BatchStats> stats;
  for (std::size_t i = 0; i < count; ++i) {
    ops::ShardScope scope(shards[i].shard());
    in.push_back(shards[i].detach());
    gamma.push_back(gammas[i].detach());
    stats.push_back(ops::merge_batch_stats(parts, in[i].device(), false));
    Tensor residual = residuals.empty() ? Tensor() : residuals[i].detach();
    outputs.push_back(
        ops::batch_norm(in[i], stats[i], gamma[i], betas[i].detach(), residual, {options.eps, options.relu}));
    mask.push_back(options.relu ? outputs[i] : Tensor());
    for (const Tensor& t : {shards[i], gammas[i], betas[i], residuals.empty() ? Tensor() : residuals[i]}) {
      // Leaves get their gradients for the shard that they were used with.
      inputs.push_back(t.defined() && t.shard() < 0 ? t.with_shard(shards[i].shard()) : t);
    }
  }
  if (used) *used = stats;
  const auto save = [](const std::vector<Tensor>& tensors) {
    return std::vector<SavedTensor>(tensors.begin(), tensors.end());
  };
  return record(
      "synchronized batch norm", inputs, std::move(outputs),
      [count, slots, at, stats, exchange, saved_in = save(in), saved_gamma = save(gamma), saved_mask = save(mask),
       eps = options.eps](const Node& node, std::span<const Tensor> grads) {
        std::vector<Tensor> in, gamma, mask;
        for (std::size_t i = 0; i < count; ++i) {
          in.push_back(saved_in[i].get(node.name));
          gamma.push_back(saved_gamma[i].get(node.name));
          mask.push_back(saved_mask[i].get(node.name));
        }
        std::vector<Tensor> g(slots), g_xhat(slots), dy(count);
        std::vector<ops::BatchNormSums> sums(count);
        for (std::size_t i = 0; i < count; ++i) {
          // A shard whose output had no influence has no gradient of its own, but its x moved the statistics.
          if (!grads[i].defined()) continue;
          ops::ShardScope scope(in[i].shard());
          dy[i] = ops::to_layout(grads[i], in[i].layout());
          sums[i] = ops::batch_norm_backward_stats(dy[i], in[i], mask[i], stats[i], eps);
          g[at[i]] = sums[i].g;
          g_xhat[at[i]] = sums[i].g_xhat;
        }
        if (exchange) {
          std::vector<std::vector<Tensor>> parts(slots);
          for (std::size_t i = 0; i < count; ++i) {
            // Every process has to contribute: zeros where others expect something.
            if (!g[at[i]].defined()) {
              ops::ShardScope scope(in[i].shard());
              g[at[i]] = ops::empty_like(stats[i].mean);
              g_xhat[at[i]] = ops::empty_like(stats[i].mean);
              ops::fill_(g[at[i]], 0);
              ops::fill_(g_xhat[at[i]], 0);
            }
            parts[at[i]] = {g[at[i]], g_xhat[at[i]]};
          }
          parts = exchange->gather(std::move(parts), "batch norm gradients");
          for (std::size_t s = 0; s < slots; ++s) {
            g[s] = parts[s].empty() ? Tensor() : parts[s][0];
            g_xhat[s] = parts[s].empty() ? Tensor() : parts[s][1];
          }
        }
        std::vector<Tensor> back;
        for (std::size_t i = 0; i < count; ++i) {
          if (!node.needs(4 * i) && !node.needs(4 * i + 3)) {
            back.insert(back.end(), {Tensor(), sums[i].g_xhat, sums[i].g, Tensor()});
            continue;
          }
          ops::ShardScope scope(in[i].shard());
          if (!dy[i].defined()) {
            dy[i] = ops::empty_like(in[i]);
            ops::fill_(dy[i], 0);
          }
          ops::BatchNormSums all{ops::tree_sum(g, in[i].device()), ops::tree_sum(g_xhat, in[i].device())};
          auto grad = ops::batch_norm_backward_data(dy[i], in[i], mask[i], stats[i], eps, gamma[i], all,
                                                    node.needs(4 * i + 3));
          for (const Tensor& t : {grad.x, sums[i].g_xhat, sums[i].g, grad.residual}) back.push_back(t);
        }
        return back;
      });
}

}  // namespace lockstep
