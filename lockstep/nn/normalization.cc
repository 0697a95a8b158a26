#include "lockstep/nn/normalization.h"

#include "lockstep/nn/sizes.h"

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
  return o;
}

ParameterOptions scale(const Shape& shape) { return {.shape = shape, .initializer = Constant{1}}; }
ParameterOptions offset(const Shape& shape) { return {.shape = shape, .initializer = Constant{0}}; }

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
      bias(options.affine ? add_parameter("bias", offset({options.num_features})) : Parameter()), options_(options) {}

InstanceNormOptions InstanceNorm::with_features(std::int64_t num_features, InstanceNormOptions more) {
  set_size("instance_norm", "num_features", more.num_features, num_features);
  return more;
}

Tensor InstanceNorm::forward(const Tensor& x) {
  if (x.defined() && x.shape().dim() == axes() - 1) return squeeze(forward(unsqueeze(x, 0)), 0);
  check(x.defined() && x.shape().dim() == axes(), "instance_norm: input is {}, expected {} axes (N, C, ..)", x, axes());
  check(options_.num_features == 0 || x.size(1) == options_.num_features,
        "instance_norm: input is {}, expected {} channels on axis 1", x, options_.num_features);
  if (options_.affine && !weight.shape_known()) {
    bias.settle_shape({x.size(1)});
    weight.settle_shape({x.size(1)});
  }
  return instance_norm(x, or_none(options_.affine, weight), or_none(options_.affine, bias), options_.eps);
}

}  // namespace lockstep
