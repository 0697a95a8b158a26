#include "lockstep/nn/conv_transpose2d.h"

namespace lockstep {

ConvTranspose2d::ConvTranspose2d(ConvTranspose2dLayerOptions options) : options_(options) {
  const auto& o = options_;
  check(o.out_channels > 0 && o.in_channels >= 0 && o.kernel > 0,
        "conv_transpose2d: {} to {} channels, kernel {}, expected at least 1", o.in_channels, o.out_channels, o.kernel);
  check(o.groups > 0 && o.out_channels % o.groups == 0 && o.in_channels % o.groups == 0,
        "conv_transpose2d: {} groups do not divide {} and {} channels", o.groups, o.in_channels, o.out_channels);
  weight = add_parameter("weight", {.shape = {o.in_channels, o.out_channels / o.groups, o.kernel, o.kernel}});
  if (o.bias) bias = add_parameter("bias", {.shape = {o.out_channels}, .initializer = Constant{0}});
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  check(x.defined() && x.shape().rank() == 4, "conv_transpose2d: input is {}, expected 4 axes (N, C, H, W)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check(x.size(1) % o.groups == 0, "conv_transpose2d: {} groups do not divide the input's {} channels", o.groups,
          x.size(1));
    weight.settle_shape({x.size(1), o.out_channels / o.groups, o.kernel, o.kernel});
  }
  return conv_transpose2d(x, weight, o.bias ? bias.tensor() : Tensor(),
                          {.stride = {o.stride, o.stride},
                           .padding = {o.padding, o.padding},
                           .output_padding = {o.output_padding, o.output_padding},
                           .groups = o.groups,
                           .dilation = {o.dilation, o.dilation}});
}

}  // namespace lockstep
