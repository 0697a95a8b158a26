#include "lockstep/nn/normalization.h"

namespace lockstep {
namespace {

Tensor or_none(bool there, const Parameter& p) { return there ? p.tensor() : Tensor(); }

}  // namespace

LayerNorm::LayerNorm(LayerNormOptions options) : options_(options) {
  check(options.normalized_shape.dim() > 0 && options.normalized_shape.numel() > 0,
        "layer_norm: normalized shape {}, expected at least one axis with elements", options.normalized_shape);
  options_.bias = options.bias && options.elementwise_affine;
  if (options.elementwise_affine) {
    weight = add_parameter("weight", {.shape = options.normalized_shape, .initializer = Constant{1}});
  }
  if (options_.bias) bias = add_parameter("bias", {.shape = options.normalized_shape, .initializer = Constant{0}});
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, options_.normalized_shape, or_none(options_.elementwise_affine, weight),
                    or_none(options_.bias, bias), options_.eps);
}

RMSNorm::RMSNorm(RMSNormOptions options) : options_(options) {
  check(options.normalized_shape.dim() > 0 && options.normalized_shape.numel() > 0,
        "rms_norm: normalized shape {}, expected at least one axis with elements", options.normalized_shape);
  if (options.elementwise_affine) {
    weight = add_parameter("weight", {.shape = options.normalized_shape, .initializer = Constant{1}});
  }
}

Tensor RMSNorm::forward(const Tensor& x) {
  return rms_norm(x, options_.normalized_shape, or_none(options_.elementwise_affine, weight), options_.eps);
}

GroupNorm::GroupNorm(GroupNormOptions options) : options_(options) {
  check(options.num_groups > 0 && options.num_channels > 0 && options.num_channels % options.num_groups == 0,
        "group_norm: {} groups do not divide {} channels", options.num_groups, options.num_channels);
  if (!options.affine) return;
  weight = add_parameter("weight", {.shape = {options.num_channels}, .initializer = Constant{1}});
  bias = add_parameter("bias", {.shape = {options.num_channels}, .initializer = Constant{0}});
}

Tensor GroupNorm::forward(const Tensor& x) {
  check(x.defined() && x.shape().dim() >= 2 && x.size(1) == options_.num_channels,
        "group_norm: input is {}, expected {} channels on axis 1", x, options_.num_channels);
  return group_norm(x, options_.num_groups, or_none(options_.affine, weight), or_none(options_.affine, bias),
                    options_.eps);
}

InstanceNorm::InstanceNorm(int dims, InstanceNormOptions options) : dims_(dims), options_(options) {
  check(options.num_features >= 0, "instance_norm: {} features, expected at least 1", options.num_features);
  if (!options.affine) return;
  weight = add_parameter("weight", {.shape = {options.num_features}, .initializer = Constant{1}});
  bias = add_parameter("bias", {.shape = {options.num_features}, .initializer = Constant{0}});
}

Tensor InstanceNorm::forward(const Tensor& x) {
  if (x.defined() && x.shape().dim() == dims_ - 1) return squeeze(forward(unsqueeze(x, 0)), 0);
  check(x.defined() && x.shape().dim() == dims_, "instance_norm: input is {}, expected {} axes (N, C, ..)", x, dims_);
  check(options_.num_features == 0 || x.size(1) == options_.num_features,
        "instance_norm: input is {}, expected {} channels on axis 1", x, options_.num_features);
  if (options_.affine && !weight.shape_known()) {
    bias.settle_shape({x.size(1)});
    weight.settle_shape({x.size(1)});
  }
  return instance_norm(x, or_none(options_.affine, weight), or_none(options_.affine, bias), options_.eps);
}

}  // namespace lockstep
