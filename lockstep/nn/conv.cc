#include "lockstep/nn/conv.h"

#include <algorithm>
#include <type_traits>

#include "lockstep/nn/initial_values.h"
#include "lockstep/nn/sizes.h"

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

template <typename Options>
const Options& checked(std::string_view name, const Options& o) {
  check_options(name, o, o.kernel_size);
  return o;
}

template <typename Options, typename Kernel>
Options with_sizes(std::string_view name, Options more, std::int64_t in_channels, std::int64_t out_channels,
                   const Kernel& kernel_size) {
  set_size(name, "in_channels", more.in_channels, in_channels);
  set_size(name, "out_channels", more.out_channels, out_channels);
  set_size<Kernel>(name, "kernel_size", more.kernel_size, kernel_size, 1);
  return more;
}

// A bias starts at 0 under initialize().
template <typename Options>
ParameterOptions bias_options(const Options& o, const Parameter& weight) {
  return {.shape = {o.out_channels}, .initializer = Constant{0}, .default_initializer = default_bias(weight)};
}

// With or without a batch.
bool has_axes(const Tensor& x, int dims) {
  return x.defined() && (x.shape().dim() == dims || x.shape().dim() == dims - 1);
}

// The channels are before the kernel's axes.
template <typename Options>
std::int64_t channels_of(const Tensor& x, const Options& o) {
  return x.size(std::is_same_v<std::remove_cvref_t<decltype(o.kernel_size)>, HeightWidth> ? -3 : -2);
}

// Checks an input that decides the number of channels.
template <typename Options>
void check_groups(std::string_view name, const Options& o, const Tensor& x) {
  const std::int64_t channels = channels_of(x, o);
  check(channels % o.groups == 0, "{}: {} groups do not divide the input's {} channels", name, o.groups, channels);
}

// x with padding of another kind than zeros, and the padding that is left.
template <typename Extents>
std::pair<Tensor, Extents> padded(const Tensor& x, PadMode mode, const Extents& padding, const HeightWidth& kernel,
                                  const HeightWidth& dilation, const HeightWidth& stride, std::string_view name) {
  if (mode == PadMode::zeros) return {x, padding};
  const HeightWidth amounts = padding;
  std::vector<std::int64_t> widths;
  for (const std::size_t i : {1, 0}) {
    if (i == 0 && !std::is_same_v<Extents, HeightWidth>) continue;
    const bool same = amounts[i] == kSame;
    check(same ? stride[i] == 1 : amounts[i] >= 0,
          "{}: padding {} with stride {}, expected at least 0, or kSame with 1", name, amounts[i], stride[i]);
    const std::int64_t both = same ? dilation[i] * (kernel[i] - 1) : 2 * amounts[i];
    widths.push_back(both / 2);
    widths.push_back(both - both / 2);
  }
  return {pad(x, widths, mode), 0};
}

Shape weight_shape(const Conv1dLayerOptions& o) { return {o.out_channels, o.in_channels / o.groups, o.kernel_size}; }
Shape weight_shape(const ConvLayerOptions& o) {
  return {o.out_channels, o.in_channels / o.groups, o.kernel_size[0], o.kernel_size[1]};
}
Shape weight_shape(const Conv3dLayerOptions& o) {
  const DepthHeightWidth& kernel = o.kernel_size;
  check_options("conv3d", o, {std::min(kernel[0], kernel[1]), kernel[2]});
  return {o.out_channels, o.in_channels / o.groups, kernel[0], kernel[1], kernel[2]};
}
Shape weight_shape(const ConvTranspose1dLayerOptions& o) {
  return {o.in_channels, o.out_channels / o.groups, o.kernel_size};
}
Shape weight_shape(const ConvTranspose2dLayerOptions& o) {
  return {o.in_channels, o.out_channels / o.groups, o.kernel_size[0], o.kernel_size[1]};
}

}  // namespace

Conv1d::Conv1d(Conv1dLayerOptions options)
    : weight(add_parameter(
          "weight", {.shape = weight_shape(checked("conv1d", options)), .default_initializer = default_weight()})),
      bias(options.bias ? add_parameter("bias", bias_options(options, weight)) : Parameter()), options_(options) {}

Conv1d::Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, Conv1dLayerOptions more)
    : Conv1d(with_sizes("conv1d", more, in_channels, out_channels, kernel_size)) {}

Tensor Conv1d::forward(const Tensor& x) {
  check(has_axes(x, 3), "conv1d: input is {}, expected 3 axes (N, C, L)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check_groups("conv1d", o, x);
    weight.settle_shape({o.out_channels, channels_of(x, o) / o.groups, o.kernel_size});
  }
  const auto [in, padding] = padded(x, o.padding_mode, o.padding, o.kernel_size, o.dilation, o.stride, "conv1d");
  return conv1d(in, weight, o.bias ? bias.tensor() : Tensor(),
                {.stride = o.stride, .padding = padding, .dilation = o.dilation, .groups = o.groups});
}

Conv2d::Conv2d(ConvLayerOptions options)
    : weight(add_parameter(
          "weight", {.shape = weight_shape(checked("conv2d", options)), .default_initializer = default_weight()})),
      bias(options.bias ? add_parameter("bias", bias_options(options, weight)) : Parameter()), options_(options) {}

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, HeightWidth kernel_size, ConvLayerOptions more)
    : Conv2d(with_sizes("conv2d", more, in_channels, out_channels, kernel_size)) {}

Tensor Conv2d::forward(const Tensor& x) {
  check(has_axes(x, 4), "conv2d: input is {}, expected 4 axes (N, C, H, W)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check_groups("conv2d", o, x);
    weight.settle_shape({o.out_channels, channels_of(x, o) / o.groups, o.kernel_size[0], o.kernel_size[1]});
  }
  const auto [in, padding] = padded(x, o.padding_mode, o.padding, o.kernel_size, o.dilation, o.stride, "conv2d");
  return conv2d(in, weight, o.bias ? bias.tensor() : Tensor(),
                {.stride = o.stride, .padding = padding, .dilation = o.dilation, .groups = o.groups});
}

Conv3d::Conv3d(Conv3dLayerOptions options)
    : weight(add_parameter("weight", {.shape = weight_shape(options), .default_initializer = default_weight()})),
      bias(options.bias ? add_parameter("bias", bias_options(options, weight)) : Parameter()), options_(options) {}

Conv3d::Conv3d(std::int64_t in_channels, std::int64_t out_channels, DepthHeightWidth kernel_size,
               Conv3dLayerOptions more)
    : Conv3d(with_sizes("conv3d", more, in_channels, out_channels, kernel_size)) {}

Tensor Conv3d::forward(const Tensor& x) {
  check(has_axes(x, 5), "conv3d: input is {}, expected 5 axes (N, C, D, H, W)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check(x.size(-4) % o.groups == 0, "conv3d: {} groups do not divide the input's {} channels", o.groups, x.size(-4));
    const DepthHeightWidth& kernel = o.kernel_size;
    weight.settle_shape({o.out_channels, x.size(-4) / o.groups, kernel[0], kernel[1], kernel[2]});
  }
  return conv3d(x, weight, o.bias ? bias.tensor() : Tensor(),
                {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
}

ConvTranspose1d::ConvTranspose1d(ConvTranspose1dLayerOptions options)
    : weight(add_parameter("weight", {.shape = weight_shape(checked("conv_transpose1d", options)),
                                      .default_initializer = default_weight()})),
      bias(options.bias ? add_parameter("bias", bias_options(options, weight)) : Parameter()), options_(options) {}

ConvTranspose1d::ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                                 ConvTranspose1dLayerOptions more)
    : ConvTranspose1d(with_sizes("conv_transpose1d", more, in_channels, out_channels, kernel_size)) {}

Tensor ConvTranspose1d::forward(const Tensor& x) {
  check(has_axes(x, 3), "conv_transpose1d: input is {}, expected 3 axes (N, C, L)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check_groups("conv_transpose1d", o, x);
    weight.settle_shape({x.size(-2), o.out_channels / o.groups, o.kernel_size});
  }
  return conv_transpose1d(x, weight, o.bias ? bias.tensor() : Tensor(),
                          {.stride = o.stride,
                           .padding = o.padding,
                           .output_padding = o.output_padding,
                           .groups = o.groups,
                           .dilation = o.dilation});
}

ConvTranspose2d::ConvTranspose2d(ConvTranspose2dLayerOptions options)
    : weight(add_parameter("weight", {.shape = weight_shape(checked("conv_transpose2d", options)),
                                      .default_initializer = default_weight()})),
      bias(options.bias ? add_parameter("bias", bias_options(options, weight)) : Parameter()), options_(options) {}

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, HeightWidth kernel_size,
                                 ConvTranspose2dLayerOptions more)
    : ConvTranspose2d(with_sizes("conv_transpose2d", more, in_channels, out_channels, kernel_size)) {}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  check(has_axes(x, 4), "conv_transpose2d: input is {}, expected 4 axes (N, C, H, W)", x);
  const auto& o = options_;
  if (!weight.shape_known()) {
    check_groups("conv_transpose2d", o, x);
    weight.settle_shape({x.size(-3), o.out_channels / o.groups, o.kernel_size[0], o.kernel_size[1]});
  }
  return conv_transpose2d(x, weight, o.bias ? bias.tensor() : Tensor(),
                          {.stride = o.stride,
                           .padding = o.padding,
                           .output_padding = o.output_padding,
                           .groups = o.groups,
                           .dilation = o.dilation});
}

}  // namespace lockstep
