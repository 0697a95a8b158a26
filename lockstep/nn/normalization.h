// Layers that normalize each sample separately. batch_norm.h has the one that normalizes over the samples.
//
//   LayerNorm& norm = make<LayerNorm>("norm", 512);
#pragma once

#include <concepts>
#include <optional>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct LayerNormOptions {
  Shape normalized_shape{};  // the extents of the last axes
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
  // The last extent, or a Shape of several: LayerNorm(512), LayerNorm(Shape{16, 32}). Templates, so that braces are
  // options.
  template <std::integral N>
  explicit LayerNorm(N features, LayerNormOptions more = {})
      : LayerNorm(Shape{static_cast<std::int64_t>(features)}, more) {}
  template <std::same_as<Shape> S>
  explicit LayerNorm(S normalized_shape, LayerNormOptions more = {}) : LayerNorm(with_shape(normalized_shape, more)) {}
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [normalized_shape]
  const Parameter bias;    // [normalized_shape]

 protected:
  std::string extra_repr() const override;

 private:
  static LayerNormOptions with_shape(const Shape& shape, LayerNormOptions more);

  LayerNormOptions options_;
};

struct RMSNormOptions {
  Shape normalized_shape{};
  std::optional<double> eps = {};  // see rms_norm()
  bool elementwise_affine = true;
};

// x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang and Sennrich 2019).
class RMSNorm : public Module {
 public:
  using Options = RMSNormOptions;
  explicit RMSNorm(RMSNormOptions options);
  // The last extent, or a Shape of several: RMSNorm(512), RMSNorm(Shape{16, 32}). Templates, so that braces are
  // options.
  template <std::integral N>
  explicit RMSNorm(N features, RMSNormOptions more = {}) : RMSNorm(Shape{static_cast<std::int64_t>(features)}, more) {}
  template <std::same_as<Shape> S>
  explicit RMSNorm(S normalized_shape, RMSNormOptions more = {}) : RMSNorm(with_shape(normalized_shape, more)) {}
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [normalized_shape]

 protected:
  std::string extra_repr() const override;

 private:
  static RMSNormOptions with_shape(const Shape& shape, RMSNormOptions more);

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
  GroupNorm(std::int64_t num_groups, std::int64_t num_channels, GroupNormOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [C]
  const Parameter bias;    // [C]

 protected:
  std::string extra_repr() const override;

 private:
  GroupNormOptions options_;
};

struct InstanceNormOptions {
  std::int64_t num_features = 0;  // 0: inferred at the first forward pass
  double eps = 1e-5;
  double momentum = 0.1;  // of the running statistics
  bool affine = false;
  bool track_running_stats = false;  // evaluation uses running statistics
};

// Normalizes each channel of each sample (Ulyanov et al. 2016), also in evaluation unless it tracks running statistics.
// In training, the running statistics move, as in PyTorch, toward the mean and the variance of a sample (with divisor
// n - 1), averaged over the samples of the whole batch:
//   running_mean += momentum (mean - running_mean), and the same for running_var.
// Training with running statistics is an error in per_shard() and DataParallel, which show the layer a single shard. An
// input may lack the batch.
class InstanceNorm : public Module {
 public:
  using Options = InstanceNormOptions;
  explicit InstanceNorm(InstanceNormOptions options = {});
  template <std::integral N>
  explicit InstanceNorm(N num_features, InstanceNormOptions more = {})
      : InstanceNorm(with_features(static_cast<std::int64_t>(num_features), more)) {}
  Tensor forward(const Tensor& x) override;

  const Parameter weight;               // [C], with `affine`
  const Parameter bias;                 // [C]
  const Parameter running_mean;         // [C], with `track_running_stats`
  const Parameter running_var;          // [C]
  const Parameter num_batches_tracked;  // i64 scalar, which stays 0, as in PyTorch

 protected:
  std::string extra_repr() const override;
  virtual int axes() const = 0;  // of an input with a batch

 private:
  static InstanceNormOptions with_features(std::int64_t num_features, InstanceNormOptions more);
  void settle_channels(std::int64_t channels);
  void move_running_statistics(const Tensor& x);

  InstanceNormOptions options_;
};

// Sequences [N, C, L].
class InstanceNorm1d : public InstanceNorm {
 public:
  using InstanceNorm::InstanceNorm;

 protected:
  int axes() const override { return 3; }
};

// Images [N, C, H, W].
class InstanceNorm2d : public InstanceNorm {
 public:
  using InstanceNorm::InstanceNorm;

 protected:
  int axes() const override { return 4; }
};

// Volumes [N, C, D, H, W].
class InstanceNorm3d : public InstanceNorm {
 public:
  using InstanceNorm::InstanceNorm;

 protected:
  int axes() const override { return 5; }
};

}  // namespace lockstep
