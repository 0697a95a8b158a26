#include "lockstep/nn/batch_norm.h"

#include "lockstep/ops/launch.h"

namespace lockstep {

BatchNorm2d::BatchNorm2d(BatchNorm2dOptions options) : options_(options) {
  check(options.channels >= 0, "batch_norm: {} channels, expected at least 1", options.channels);
  Shape channels{options.channels};
  weight = add_parameter("weight", {.shape = channels, .initializer = Constant{1}});
  bias = add_parameter("bias", {.shape = channels, .initializer = Constant{0}});
  running_mean = add_buffer("running_mean", {.shape = channels, .initializer = Constant{0}, .computed = true});
  running_var = add_buffer("running_var", {.shape = channels, .initializer = Constant{1}, .computed = true});
  num_batches_tracked = add_buffer("num_batches_tracked", {.dtype = DType::i64, .initializer = Constant{0}});
}

void BatchNorm2d::settle(const Tensor& x) {
  check(x.defined() && x.shape().rank() == 4, "batch_norm: input is {}, expected 4 axes (N, C, H, W)", x.describe());
  if (weight.shape_known()) return;
  for (Parameter* p : {&weight, &bias, &running_mean, &running_var}) p->settle_shape({x.size(1)});
}

Tensor BatchNorm2d::forward_fused(const Tensor& x, const Tensor& residual, bool relu) {
  settle(x);
  BatchNormOptions options{options_.eps, relu};
  Device device = x.device();
  if (!training()) {
    return batch_norm_eval(x, weight.data(device), bias.data(device), running_mean.data(device),
                           running_var.data(device), residual, options);
  }
  ops::BatchStats stats;
  Tensor y = batch_norm_train(x, weight.data(device), bias.data(device), residual, options, &stats);
  keep(x, stats);
  return y;
}

std::vector<Tensor> BatchNorm2d::forward_fused(std::span<const Tensor> xs, std::span<const Tensor> residuals,
                                               bool relu) {
  if (!mixes_shards()) {
    std::vector<Tensor> ys;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      ys.push_back(forward_fused(xs[i], residuals.empty() ? Tensor() : residuals[i], relu));
    }
    return ys;
  }
  std::vector<Tensor> gammas, betas;
  for (const Tensor& x : xs) {
    settle(x);
    gammas.push_back(weight.data(x.device()));
    betas.push_back(bias.data(x.device()));
  }
  std::vector<ops::BatchStats> stats;
  std::vector<Tensor> ys =
      batch_norm_synchronized(xs, gammas, betas, residuals, {options_.eps, relu}, &stats, shard_exchange());
  // All shards used the merged ones: once is enough.
  if (!stats.empty()) keep(xs[0].with_shard(0), stats[0]);
  return ys;
}

void BatchNorm2d::keep(const Tensor& x, const ops::BatchStats& stats) {
  if (pending_batch_ != batch_number()) pending_.clear();
  bool first = pending_.empty();
  pending_batch_ = batch_number();
  pixels_ = x.size(2) * x.size(3);
  auto slot = static_cast<std::size_t>(x.shard() < 0 ? 0 : x.shard());
  if (pending_.size() <= slot) pending_.resize(slot + 1);
  pending_[slot] = stats;
  if (first) after_batch([this] { commit(); });
}

void BatchNorm2d::commit() {
  auto parts = std::move(pending_);
  pending_.clear();
  // Synchronized statistics are those of all shards already.
  if (auto exchange = shard_exchange(); exchange && !options_.synchronized) {
    parts = gather_stats(*exchange, parts, pixels_);
  }
  // Each device merges for itself, in memory that it can read: the same few numbers, the same bits.
  for (Device device : running_mean.devices()) {
    ops::BatchStats merged = ops::merge_batch_stats(parts, device, true);
    ops::batch_norm_commit(merged, options_.momentum, running_mean.data(device), running_var.data(device),
                           num_batches_tracked.data(device));
  }
}

void convert_sync_batchnorm(Module& module) {
  for (auto& [name, m] : module.named_modules()) {
    if (auto* norm = dynamic_cast<BatchNorm2d*>(m)) norm->set_synchronized(true);
  }
}

}  // namespace lockstep
