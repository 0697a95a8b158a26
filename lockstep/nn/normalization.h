// Normalization layers. In training, batch norm normalizes over the samples; in evaluation, it uses running statistics.
// The other layers always normalize each sample separately.
#pragma once

#include <optional>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct BatchNormOptions;

// Options of BatchNorm1d and BatchNorm2d.
struct BatchNormLayerOptions {
  std::int64_t channels = 0;  // 0: inferred at the first forward pass
  double eps = 1e-5;
  double momentum = 0.1;
  // Takes statistics over all shards of the batch instead of over each shard.
  bool synchronized = false;
};
using BatchNorm1dOptions = BatchNormLayerOptions;
using BatchNorm2dOptions = BatchNormLayerOptions;

// Batch norm of channels (Ioffe and Szegedy 2015): (x - mean) / sqrt(var + eps) * weight + bias, with a mean and a
// variance for each channel, which are on axis 1. In training, they are those of the shard, or of the whole batch with
// `synchronized`; the divisor of the variance is n, the number of values of a channel. Each call moves the running
// statistics toward those of the whole batch:
//   running_mean += momentum (mean - running_mean), and the same for running_var with the divisor n - 1.
// In evaluation, it uses the running statistics. Throws if the input has the wrong number of axes or channels, and, on
// all ranks, if in training a shard (with `synchronized`: the batch) has only one value for each channel, because the
// output would not depend on it. A batch of no samples changes nothing but num_batches_tracked.
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& x) override { return forward_fused(x, {}, false); }

  // relu(normalized x + residual) in one pass over memory. Pass an undefined residual to add nothing, and relu = false
  // to skip the ReLU.
  Tensor forward_fused(const Tensor& x, const Tensor& residual, bool relu);

  void set_synchronized(bool on) { options_.synchronized = on; }
  bool synchronized() const { return options_.synchronized; }

  Parameter weight;               // gamma [C]
  Parameter bias;                 // beta [C]
  Parameter running_mean;         // [C]
  Parameter running_var;          // [C]
  Parameter num_batches_tracked;  // i64 scalar

 protected:
  explicit BatchNorm(BatchNormLayerOptions options);
  std::string extra_repr() const override;
  // x as images [N, C, H, W]. Throws for another number of axes than the layer's.
  virtual Tensor as_images(const Tensor& x) const = 0;

 private:
  // Normalizes by the statistics of x, which are images, and moves the running ones.
  Tensor train_step(const Tensor& x, const Tensor& residual, const BatchNormOptions& options);

  BatchNormLayerOptions options_;
};

// Batch norm of features [N, C], or of sequences [N, C, L]. The residual of forward_fused() has x's shape.
class BatchNorm1d : public BatchNorm {
 public:
  using Options = BatchNorm1dOptions;
  explicit BatchNorm1d(BatchNorm1dOptions options = {}) : BatchNorm(options) {}

 protected:
  Tensor as_images(const Tensor& x) const override;
};

// Batch norm of images [N, C, H, W].
class BatchNorm2d : public BatchNorm {
 public:
  using Options = BatchNorm2dOptions;
  explicit BatchNorm2d(BatchNorm2dOptions options = {}) : BatchNorm(options) {}

 protected:
  Tensor as_images(const Tensor& x) const override;
};

// Makes every batch norm of the model synchronized, in place (torch.nn.SyncBatchNorm.convert_sync_batchnorm).
void convert_sync_batchnorm(Module& module);

struct LayerNormOptions {
  Shape normalized_shape;  // the extents of the last axes
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};

// (x - mean) / sqrt(var + eps) * weight + bias over the last axes (Ba, Kiros, and Hinton 2016). The divisor of var is
// the number of elements. Throws if the last extents are not normalized_shape.
class LayerNorm : public Module {
 public:
  using Options = LayerNormOptions;
  explicit LayerNorm(LayerNormOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [normalized_shape]
  Parameter bias;    // [normalized_shape]

 protected:
  std::string extra_repr() const override;

 private:
  LayerNormOptions options_;
};

struct RMSNormOptions {
  Shape normalized_shape;
  std::optional<double> eps = {};  // see rms_norm()
  bool elementwise_affine = true;
};

// x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang and Sennrich 2019).
class RMSNorm : public Module {
 public:
  using Options = RMSNormOptions;
  explicit RMSNorm(RMSNormOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [normalized_shape]

 protected:
  std::string extra_repr() const override;

 private:
  RMSNormOptions options_;
};

struct GroupNormOptions {
  std::int64_t num_groups = 0;
  std::int64_t num_channels = 0;
  double eps = 1e-5;
  bool affine = true;
};

// [N, C, ..]: layer norm over all pixels of each group of channels (Wu and He 2018). Throws unless num_groups divides
// num_channels, which is C.
class GroupNorm : public Module {
 public:
  using Options = GroupNormOptions;
  explicit GroupNorm(GroupNormOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [C]
  Parameter bias;    // [C]

 protected:
  std::string extra_repr() const override;

 private:
  GroupNormOptions options_;
};

}  // namespace lockstep
