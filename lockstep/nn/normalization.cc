#include "lockstep/nn/normalization.h"

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/shard_collector.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/nn/sizes.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/norm.h"

namespace lockstep {
namespace {

Tensor or_none(bool there, const Parameter& p) { return there ? p.tensor() : Tensor(); }

void check_shape(std::string_view what, const Shape& shape) {
  check(shape.dim() > 0 && shape.numel() > 0, "{}: normalized shape {}, expected at least one axis with elements", what,
        shape);
}

LayerNormOptions checked(LayerNormOptions o) {
  check_shape("layer_norm", o.normalized_shape);
  o.bias = o.bias && o.elementwise_affine;
  return o;
}

RMSNormOptions checked(RMSNormOptions o) {
  check_shape("rms_norm", o.normalized_shape);
  return o;
}

GroupNormOptions checked(GroupNormOptions o) {
  check(o.num_groups > 0 && o.num_channels > 0 && o.num_channels % o.num_groups == 0,
        "group_norm: {} groups do not divide {} channels", o.num_groups, o.num_channels);
  return o;
}

InstanceNormOptions checked(InstanceNormOptions o) {
  check(o.num_features >= 0, "instance_norm: {} features, expected at least 1", o.num_features);
  check(o.momentum >= 0, "instance_norm: momentum {}, expected at least 0", o.momentum);
  return o;
}

ParameterOptions scale(const Shape& shape) { return {.shape = shape, .initializer = Constant{1}}; }
ParameterOptions offset(const Shape& shape) { return {.shape = shape, .initializer = Constant{0}}; }
ParameterOptions running(std::int64_t channels, double value) {
  return {.shape = {channels}, .initializer = Constant{value}, .computed = true};
}

}  // namespace

LayerNorm::LayerNorm(LayerNormOptions options)
    : weight(checked(options).elementwise_affine ? add_parameter("weight", scale(options.normalized_shape))
                                                 : Parameter()),
      bias(checked(options).bias ? add_parameter("bias", offset(options.normalized_shape)) : Parameter()),
      options_(checked(options)) {}

LayerNormOptions LayerNorm::with_shape(const Shape& shape, LayerNormOptions more) {
  set_size("layer_norm", "normalized_shape", more.normalized_shape, shape);
  return more;
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, options_.normalized_shape, or_none(options_.elementwise_affine, weight),
                    or_none(options_.bias, bias), options_.eps);
}

RMSNorm::RMSNorm(RMSNormOptions options)
    : weight(checked(options).elementwise_affine ? add_parameter("weight", scale(options.normalized_shape))
                                                 : Parameter()),
      options_(options) {}

RMSNormOptions RMSNorm::with_shape(const Shape& shape, RMSNormOptions more) {
  set_size("rms_norm", "normalized_shape", more.normalized_shape, shape);
  return more;
}

Tensor RMSNorm::forward(const Tensor& x) {
  return rms_norm(x, options_.normalized_shape, or_none(options_.elementwise_affine, weight), options_.eps);
}

GroupNorm::GroupNorm(GroupNormOptions options)
    : weight(checked(options).affine ? add_parameter("weight", scale({options.num_channels})) : Parameter()),
      bias(options.affine ? add_parameter("bias", offset({options.num_channels})) : Parameter()), options_(options) {}

GroupNorm::GroupNorm(std::int64_t num_groups, std::int64_t num_channels, GroupNormOptions more)
    : GroupNorm((set_size("group_norm", "num_groups", more.num_groups, num_groups),
                 set_size("group_norm", "num_channels", more.num_channels, num_channels), more)) {}

Tensor GroupNorm::forward(const Tensor& x) {
  check(x.defined() && x.shape().dim() >= 2 && x.size(1) == options_.num_channels,
        "group_norm: input is {}, expected {} channels on axis 1", x, options_.num_channels);
  return group_norm(x, options_.num_groups, or_none(options_.affine, weight), or_none(options_.affine, bias),
                    options_.eps);
}

InstanceNorm::InstanceNorm(InstanceNormOptions options)
    : weight(checked(options).affine ? add_parameter("weight", scale({options.num_features})) : Parameter()),
      bias(options.affine ? add_parameter("bias", offset({options.num_features})) : Parameter()),
      running_mean(options.track_running_stats ? add_buffer("running_mean", running(options.num_features, 0))
                                               : Parameter()),
      running_var(options.track_running_stats ? add_buffer("running_var", running(options.num_features, 1))
                                              : Parameter()),
      num_batches_tracked(options.track_running_stats
                              ? add_buffer("num_batches_tracked", {.dtype = DType::i64, .initializer = Constant{0}})
                              : Parameter()),
      options_(options) {}

InstanceNormOptions InstanceNorm::with_features(std::int64_t num_features, InstanceNormOptions more) {
  set_size("instance_norm", "num_features", more.num_features, num_features);
  return more;
}

Tensor InstanceNorm::forward(const Tensor& x) {
  if (x.defined() && x.shape().dim() == axes() - 1) return squeeze(forward(unsqueeze(x, 0)), 0);
  check(x.defined() && x.shape().dim() == axes(), "instance_norm: input is {}, expected {} axes (N, C, ..)", x, axes());
  check(options_.num_features == 0 || x.size(1) == options_.num_features,
        "instance_norm: input is {}, expected {} channels on axis 1", x, options_.num_features);
  settle_channels(x.size(1));
  const Tensor scale = or_none(options_.affine, weight), shift = or_none(options_.affine, bias);
  if (!options_.track_running_stats) return instance_norm(x, scale, shift, options_.eps);
  if (training()) {
    const Tensor y = instance_norm(x, scale, shift, options_.eps);
    CheckpointScope::once([&] { move_running_statistics(x.detach()); });
    return y;
  }
  std::vector<std::int64_t> extents(static_cast<std::size_t>(axes()) - 1, 1);
  extents[0] = x.size(1);
  const auto of_channels = [&](const Tensor& t) { return t.reshape(Shape(extents)); };
  Tensor y = (x - of_channels(running_mean)) * of_channels(rsqrt(running_var.tensor() + options_.eps));
  if (options_.affine) y = y * of_channels(scale) + of_channels(shift);
  return cast(y, x.dtype());
}

void InstanceNorm::settle_channels(std::int64_t channels) {
  const auto settle = [&](const Parameter& p) {
    if (!p.defined()) return;
    const std::int64_t known = p.shape_known() ? p.shape()[0] : channels;
    check(known == channels, "instance_norm: input has {} channels, expected {}", channels, known);
    if (!p.shape_known()) p.settle_shape({channels});
  };
  settle(running_var);
  settle(running_mean);
  settle(bias);
  settle(weight);
}

void InstanceNorm::move_running_statistics(const Tensor& x) {
  const Placement* const at = x->at.get();
  check(!at || !at->collector(),
        "instance_norm: running statistics in per_shard() or DataParallel would see one shard alone: pass the whole "
        "batch to the model, as split_and_load() cuts it");
  if (x.size(0) == 0) return;
  const NoGradGuard no_grad;
  const Tensor elements = flatten(is_half_dtype(x.dtype()) ? cast(x, DType::f32) : x, 2);
  const Tensor means = mean(mean(elements, 2), 0), variances = mean(var(elements, 2), 0);
  for (Device device : running_mean.devices()) {
    const auto there = [device](const Tensor& t) { return ops::to_device(t->array(), device, {.non_blocking = true}); };
    // A count of 2 makes the variance's divisor, n - 1, 1. A scratch tensor takes the batch count, which PyTorch does
    // not keep.
    const ops::BatchStats stats{2, there(means), there(variances)};
    ops::batch_norm_commit(stats, options_.momentum, running_mean.tensor()->on(device),
                           running_var.tensor()->on(device), ops::full({}, 0, DType::i64, device));
  }
}

}  // namespace lockstep
