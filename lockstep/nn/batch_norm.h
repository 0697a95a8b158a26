// Batch norm. In training, it normalizes over the samples; in evaluation, it uses running statistics.
//
//   Sequential net(Conv2d(3, 64, 3), BatchNorm2d(64), ReLU());
//   Sequential lazy(Conv2d({.out_channels = 64, .kernel_size = 3}), BatchNorm2d(), ReLU());  // the first input decides
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct BatchNormOptions;

// Options of BatchNorm1d, BatchNorm2d, and BatchNorm3d.
struct BatchNormLayerOptions {
  std::int64_t channels = 0;  // 0: inferred at the first forward pass
  double eps = 1e-5;
  // std::nullopt: the running statistics are the average of those of all calls (PyTorch's momentum = None).
  std::optional<double> momentum = 0.1;
  // Takes statistics over all shards of the batch instead of over each shard.
  bool synchronized = false;
  bool affine = true;  // has weight and bias
  // False: no running statistics. Evaluation then uses the statistics of the shard (`synchronized`: the batch), too.
  bool track_running_stats = true;
};
using BatchNorm1dOptions = BatchNormLayerOptions;
using BatchNorm2dOptions = BatchNormLayerOptions;
using BatchNorm3dOptions = BatchNormLayerOptions;

// Batch norm of channels (Ioffe and Szegedy 2015): (x - mean) / sqrt(var + eps) * weight + bias, with a mean and a
// variance for each channel (axis 1). In training, mean and variance are those of the shard, or of the whole batch with
// `synchronized`; the divisor of the variance is n, the number of values of a channel. Each call moves the running
// statistics toward those of the whole batch:
//   running_mean += momentum (mean - running_mean), and the same for running_var with the divisor n - 1.
// In evaluation, it uses the running statistics. Throws if the input has the wrong number of axes or channels, and, on
// all ranks, if in training a shard (with `synchronized`: the batch) has only one value per channel, because
// the normalized output would always be 0. A batch of no samples changes nothing but num_batches_tracked.
class BatchNorm : public Module {
 public:
  using Options = BatchNormLayerOptions;
  explicit BatchNorm(BatchNormLayerOptions options = {});
  // A template, so that braces are options.
  template <std::integral N>
  explicit BatchNorm(N channels, BatchNormLayerOptions more = {})
      : BatchNorm(with_channels(static_cast<std::int64_t>(channels), more)) {}
  Tensor forward(const Tensor& x) override { return forward_fused(x, {}, false); }

  // relu(normalized x + residual) in one pass over memory. Pass an undefined residual to add nothing, and relu = false
  // to skip the ReLU.
  Tensor forward_fused(const Tensor& x, const Tensor& residual, bool relu);

  void set_synchronized(bool on) { options_.synchronized = on; }
  bool synchronized() const { return options_.synchronized; }
  void set_eps(double eps) { options_.eps = eps; }
  double eps() const { return options_.eps; }
  void set_momentum(std::optional<double> momentum) { options_.momentum = momentum; }
  std::optional<double> momentum() const { return options_.momentum; }

  const Parameter weight;               // gamma [C], with `affine`
  const Parameter bias;                 // beta [C]
  const Parameter running_mean;         // [C], with `track_running_stats`
  const Parameter running_var;          // [C]
  const Parameter num_batches_tracked;  // i64 scalar

 protected:
  std::string extra_repr() const override;
  // Returns x as images [N, C, H, W]. Throws if x has the wrong number of axes for the layer.
  virtual Tensor as_images(const Tensor& x) const = 0;

 private:
  static BatchNormLayerOptions with_channels(std::int64_t channels, BatchNormLayerOptions more);
  // Normalizes images x by their own statistics, and in training moves the running statistics.
  Tensor train_step(const Tensor& x, const Tensor& residual, const BatchNormOptions& options);
  void settle_channels(std::int64_t channels);
  std::int64_t known_channels() const;
  // Return the weight, or 1 for each channel, and the bias, or 0 for each channel.
  Tensor scale(const Tensor& images) const;
  Tensor shift(const Tensor& images) const;

  BatchNormLayerOptions options_;
};

// Batch norm of features [N, C], or of sequences [N, C, L]. The residual of forward_fused() has x's shape.
class BatchNorm1d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  Tensor as_images(const Tensor& x) const override;
};

// Batch norm of images [N, C, H, W].
class BatchNorm2d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  Tensor as_images(const Tensor& x) const override;
};

// Batch norm of volumes [N, C, D, H, W].
class BatchNorm3d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  Tensor as_images(const Tensor& x) const override;
};

// Makes every batch norm of the model synchronized, in place (torch.nn.SyncBatchNorm.convert_sync_batchnorm).
void convert_sync_batchnorm(Module& module);

}  // namespace lockstep
