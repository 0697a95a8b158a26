#include "lockstep/nn/conv.h"

#include <algorithm>

namespace lockstep {
namespace {

template <typename Options>
void check_options(std::string_view name, const Options& o, const HeightWidth& kernel) {
  const std::int64_t smallest = std::min(kernel[0], kernel[1]);
  check(o.out_channels > 0 && o.in_channels >= 0 && smallest > 0,
        "{}: {} to {} channels, kernel {}, expected at least 1", name, o.in_channels, o.out_channels, smallest);
  check(o.groups > 0 && o.out_channels % o.groups == 0 && o.in_channels % o.groups == 0,
        "{}: {} groups do not divide {} and {} channels", name, o.groups, o.in_channels, o.out_channels);
}

// Checks an input that decides the number of channels.
template <typename Options>
void check_groups(std::string_view name, const Options& o, const Tensor& x) {
  check(x.size(1) % o.groups == 0, "{}: {} groups do not divide the input's {} channels", name, o.groups, x.size(1));
}

}  // namespace

Conv1d::Conv1d(Conv1dLayerOptions options) : options_(options) {
  const auto& o = options_;
  check_options("conv1d", o, o.kernel_size);
  weight = add_parameter("weight", {.shape = {o.out_channels, o.in_channels / o.groups, o.kernel_size}});
  if (o.bias) bias = add_parameter("bias", {.shape = {o.out_channels}, .initializer = Constant{0}});
}

Tensor Conv1d::forward(const Tensor& x) {
  check(x.defined() && x.shape().dim() == 3, "conv1d: input is {}, expected 3 axes (N, C, L)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check_groups("conv1d", o, x);
    weight.settle_shape({o.out_channels, x.size(1) / o.groups, o.kernel_size});
  }
  return conv1d(x, weight, o.bias ? bias.tensor() : Tensor(),
                {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
}

Conv2d::Conv2d(ConvLayerOptions options) : options_(options) {
  const auto& o = options_;
  check_options("conv2d", o, o.kernel_size);
  weight = add_parameter("weight",
                         {.shape = {o.out_channels, o.in_channels / o.groups, o.kernel_size[0], o.kernel_size[1]}});
  if (o.bias) bias = add_parameter("bias", {.shape = {o.out_channels}, .initializer = Constant{0}});
}

Tensor Conv2d::forward(const Tensor& x) {
  check(x.defined() && x.shape().dim() == 4, "conv2d: input is {}, expected 4 axes (N, C, H, W)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check_groups("conv2d", o, x);
    weight.settle_shape({o.out_channels, x.size(1) / o.groups, o.kernel_size[0], o.kernel_size[1]});
  }
  return conv2d(x, weight, o.bias ? bias.tensor() : Tensor(),
                {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
}

ConvTranspose2d::ConvTranspose2d(ConvTranspose2dLayerOptions options) : options_(options) {
  const auto& o = options_;
  check_options("conv_transpose2d", o, o.kernel_size);
  weight = add_parameter("weight",
                         {.shape = {o.in_channels, o.out_channels / o.groups, o.kernel_size[0], o.kernel_size[1]}});
  if (o.bias) bias = add_parameter("bias", {.shape = {o.out_channels}, .initializer = Constant{0}});
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  check(x.defined() && x.shape().dim() == 4, "conv_transpose2d: input is {}, expected 4 axes (N, C, H, W)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check_groups("conv_transpose2d", o, x);
    weight.settle_shape({x.size(1), o.out_channels / o.groups, o.kernel_size[0], o.kernel_size[1]});
  }
  return conv_transpose2d(x, weight, o.bias ? bias.tensor() : Tensor(),
                          {.stride = o.stride,
                           .padding = o.padding,
                           .output_padding = o.output_padding,
                           .groups = o.groups,
                           .dilation = o.dilation});
}

}  // namespace lockstep
