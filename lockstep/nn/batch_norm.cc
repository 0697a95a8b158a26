#include "lockstep/nn/batch_norm.h"

#include <numeric>

#include "lockstep/autograd/batch_norm.h"
#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/shard_collector.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/nn/layer_error.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {
namespace {

// Moves the running statistics. stats[s] is for shard s; undefined if another process has the shard. `values`: see
// gather_stats.
void commit(const BatchNorm& norm, double momentum, const Placement* at, std::vector<ops::BatchStats> stats,
            std::int64_t values) {
  if (at) stats = gather_stats(*at, stats, values);
  // Each device merges the statistics itself, in memory that it can read. All merge the same values, so the bits agree.
  for (Device device : norm.running_mean.devices()) {
    ops::BatchStats merged = ops::merge_batch_stats(stats, device, true);
    ops::batch_norm_commit(merged, momentum, norm.running_mean.tensor()->on(device),
                           norm.running_var.tensor()->on(device), norm.num_batches_tracked.tensor()->on(device));
  }
}

// As in PyTorch: one value is its own mean, so the output would be the bias, whatever the input. All ranks know the
// sizes of all shards, so all throw.
void check_values(const Tensor& x, bool synchronized) {
  const Placement* const at = x->at.get();
  const bool alone = at && at->collector();
  const std::vector<std::int64_t> rows = alone ? at->batch()->all_ranks().rows()
                                         : at  ? at->all_ranks().rows()
                                               : std::vector{x.size(0)};
  const std::int64_t samples = alone ? at->rows_of(at->slots()[0].shard) : at ? at->samples() : x.size(0);
  const std::int64_t values = x.size(1) * samples == 0 ? 0 : x.numel() / (x.size(1) * samples);
  const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  if (synchronized || !at) {
    check(
        all * values != 1,
        "batch_norm: input is {}, expected more than 1 value per channel in training: use a larger batch, or a loader "
        "with drop_last",
        x);
    return;
  }
  for (std::size_t s = 0; s < rows.size(); ++s) {
    check(
        rows[s] * values != 1,
        "batch_norm: shard {} of {} has 1 sample with 1 value per channel ({} samples in all), expected more than 1 "
        "value per channel in training: use statistics over the whole batch (convert_sync_batchnorm()), another batch "
        "size or number of shards, or a loader with drop_last",
        s, rows.size(), all);
  }
}

Shape channels_of(const BatchNormLayerOptions& o) {
  check(o.channels >= 0, "batch_norm: {} channels, expected at least 1", o.channels);
  check(!o.momentum || *o.momentum >= 0, "batch_norm: momentum {}, expected at least 0, or none",
        o.momentum.value_or(0));
  return {o.channels};
}

ParameterOptions scale_of(const BatchNormLayerOptions& o) {
  return {.shape = channels_of(o), .initializer = Constant{1}};
}

}  // namespace

BatchNorm::BatchNorm(BatchNormLayerOptions options)
    : weight(options.affine ? add_parameter("weight", scale_of(options)) : Parameter()),
      bias(options.affine ? add_parameter("bias", {.shape = channels_of(options), .initializer = Constant{0}})
                          : Parameter()),
      running_mean(options.track_running_stats
                       ? add_buffer("running_mean",
                                    {.shape = channels_of(options), .initializer = Constant{0}, .computed = true})
                       : Parameter()),
      running_var(
          options.track_running_stats
              ? add_buffer("running_var", {.shape = channels_of(options), .initializer = Constant{1}, .computed = true})
              : Parameter()),
      num_batches_tracked(options.track_running_stats
                              ? add_buffer("num_batches_tracked", {.dtype = DType::i64, .initializer = Constant{0}})
                              : Parameter()),
      options_(options) {}

BatchNormLayerOptions BatchNorm::with_channels(std::int64_t channels, BatchNormLayerOptions more) {
  set_size("batch_norm", "channels", more.channels, channels);
  return more;
}

Tensor BatchNorm1d::as_images(const Tensor& x) const {
  const int dims = x.shape().dim();
  check(x.defined() && (dims == 2 || dims == 3), "batch_norm: input is {}, expected 2 axes (N, C) or 3 (N, C, L)", x);
  // Images of one row, or of one pixel.
  const Tensor rows = unsqueeze(x, 2);
  return dims == 3 ? rows : unsqueeze(rows, 3);
}

Tensor BatchNorm2d::as_images(const Tensor& x) const {
  check(x.defined() && x.shape().dim() == 4, "batch_norm: input is {}, expected 4 axes (N, C, H, W)", x);
  return x;
}

Tensor BatchNorm3d::as_images(const Tensor& x) const {
  check(x.defined() && x.shape().dim() == 5, "batch_norm: input is {}, expected 5 axes (N, C, D, H, W)", x);
  return flatten(x, 2, 3);
}

std::int64_t BatchNorm::known_channels() const {
  // Another thread may be settling the shape; a shape may be read only once it is known.
  const auto extent = [](const Parameter& p) { return p.shape_known() ? p.shape()[0] : 0; };
  return options_.affine ? extent(weight) : options_.track_running_stats ? extent(running_mean) : options_.channels;
}

void BatchNorm::settle_channels(std::int64_t channels) {
  if (const std::int64_t known = known_channels(); known != 0) {
    // With a weight, the kernels check the channels.
    check(options_.affine || known == channels, "batch_norm: input has {} channels, expected {}", channels, known);
    return;
  }
  if (options_.track_running_stats) {
    running_var.settle_shape({channels});
    running_mean.settle_shape({channels});
  }
  // Settle the weight last, because other threads look only at the weight.
  if (options_.affine) {
    bias.settle_shape({channels});
    weight.settle_shape({channels});
  }
}

namespace {

Tensor for_each_channel(const Tensor& images, float value) {
  const std::vector<float> values(static_cast<std::size_t>(images.size(1)), value);
  const Tensor constant = Tensor::from(values, {images.size(1)});
  return beside(images, images.dtype() == DType::f64 ? cast(beside(images, constant), DType::f64) : constant);
}

}  // namespace

Tensor BatchNorm::scale(const Tensor& images) const {
  return options_.affine ? weight.tensor() : for_each_channel(images, 1);
}
Tensor BatchNorm::shift(const Tensor& images) const {
  return options_.affine ? bias.tensor() : for_each_channel(images, 0);
}

Tensor BatchNorm::forward_fused(const Tensor& x, const Tensor& residual, bool relu) try {
  const TracedModule traced(this);
  const Tensor images = as_images(x), added = residual.defined() ? as_images(residual) : residual;
  settle_channels(images.size(1));
  const BatchNormOptions options{options_.eps, relu};
  Tensor y = !options_.track_running_stats || training()
                 ? train_step(images, added, options)
                 : batch_norm_eval(images, scale(images), shift(images), running_mean, running_var, added, options);
  const int dims = x.shape().dim();
  if (dims == 5) y = unflatten(y, 2, {x.size(2), x.size(3)});
  if (dims == 2) y = squeeze(y, {2, 3});
  if (dims == 3) y = squeeze(y, 2);
  return OutputObserver::reported(*this, y);
} catch (const Error&) {
  rethrow_in(*this);
}

Tensor BatchNorm::train_step(const Tensor& x, const Tensor& residual, const BatchNormOptions& options) {
  check_values(x, options_.synchronized);
  // The number of values that a sample adds to each channel.
  const std::int64_t values = x->cut.outer * x->cut.inner * x.size(2) * x.size(3);
  const Placement* at = x->at.get();
  ShardCollector* const collector = at ? at->collector() : nullptr;
  // The first call of a checkpoint has moved the statistics.
  const bool commits = options_.track_running_stats && training() && !CheckpointScope::repeats();
  const double momentum = options_.momentum.value_or(-1);  // see kernels::CommitNormStats
  const Tensor gamma = scale(x), beta = shift(x);
  if (options_.synchronized) {
    check(!collector,
          "batch_norm: synchronized batch norm in per_shard() or DataParallel would see one shard alone: pass the "
          "whole batch to the model, as split_and_load() cuts it");
    ops::BatchStats stats;
    Tensor y = batch_norm_synchronized(x, gamma, beta, residual, options, &stats);
    if (commits) commit(*this, momentum, nullptr, {stats}, values);
    return y;
  }
  std::vector<ops::BatchStats> stats;
  Tensor y = batch_norm_train(x, gamma, beta, residual, options, &stats);
  if (!commits) return y;
  if (!at) {
    commit(*this, momentum, nullptr, std::move(stats), values);
  } else if (collector) {
    collector->add(this, at->slots()[0].shard, stats[0],
                   [this, momentum, batch = at->batch(), values](std::vector<std::any> found) {
                     std::vector<ops::BatchStats> all(found.size());
                     for (std::size_t s = 0; s < all.size(); ++s) {
                       if (found[s].has_value()) all[s] = std::any_cast<ops::BatchStats>(found[s]);
                     }
                     commit(*this, momentum, batch.get(), std::move(all), values);
                   });
  } else {
    std::vector<ops::BatchStats> all(at->rows().size());
    for (std::size_t i = 0; i < stats.size(); ++i) all[static_cast<std::size_t>(at->slots()[i].shard)] = stats[i];
    commit(*this, momentum, at, std::move(all), values);
  }
  return y;
}

void convert_sync_batchnorm(Module& module) {
  for (auto& [name, m] : module.named_modules()) {
    if (auto* norm = dynamic_cast<BatchNorm*>(m)) norm->set_synchronized(true);
  }
}

}  // namespace lockstep
