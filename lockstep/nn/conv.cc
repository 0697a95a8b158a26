#include "lockstep/nn/conv.h"

#include <algorithm>
#include <concepts>
#include <vector>

#include "lockstep/nn/initial_values.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {
namespace {

// Returns one number for each axis of the kernel, the last axis last.
std::vector<std::int64_t> each(std::int64_t n) { return {n}; }
std::vector<std::int64_t> each(const HeightWidth& n) { return {n[0], n[1]}; }
std::vector<std::int64_t> each(const DepthHeightWidth& n) { return {n[0], n[1], n[2]}; }

template <typename Extents>
constexpr int kKernelAxes = std::same_as<Extents, std::int64_t>  ? 1
                            : std::same_as<Extents, HeightWidth> ? 2
                                                                 : 3;
constexpr const char* kConvNames[] = {"", "conv1d", "conv2d", "conv3d"};
constexpr const char* kTransposeNames[] = {"", "conv_transpose1d", "conv_transpose2d"};

template <typename Options>
const Options& checked(std::string_view name, const Options& o) {
  const std::int64_t smallest = std::ranges::min(each(o.kernel_size));
  check(o.out_channels > 0 && o.in_channels >= 0 && smallest > 0,
        "{}: {} to {} channels, kernel {}, expected at least 1", name, o.in_channels, o.out_channels, smallest);
  check(o.groups > 0 && o.out_channels % o.groups == 0 && o.in_channels % o.groups == 0,
        "{}: {} groups do not divide {} and {} channels", name, o.groups, o.in_channels, o.out_channels);
  return o;
}

template <typename Options, typename Extents>
Options with_sizes(std::string_view name, Options more, std::int64_t in_channels, std::int64_t out_channels,
                   const Extents& kernel_size) {
  set_size(name, "in_channels", more.in_channels, in_channels);
  set_size(name, "out_channels", more.out_channels, out_channels);
  set_size<Extents>(name, "kernel_size", more.kernel_size, kernel_size, 1);
  return more;
}

ParameterOptions weight_options(const Shape& shape) {
  return {.shape = shape, .default_initializer = default_weight()};
}
// A bias starts at 0 under initialize().
template <typename Options>
ParameterOptions bias_options(const Options& o, const Parameter& weight) {
  return {.shape = {o.out_channels}, .initializer = Constant{0}, .default_initializer = default_bias(weight)};
}

template <typename Extents>
Shape weight_shape(const ConvNdLayerOptions<Extents>& o, std::int64_t in_channels) {
  std::vector<std::int64_t> extents = each(o.kernel_size);
  extents.insert(extents.begin(), {o.out_channels, in_channels / o.groups});
  return Shape(extents);
}
template <typename Extents>
Shape weight_shape(const ConvTransposeNdLayerOptions<Extents>& o, std::int64_t in_channels) {
  std::vector<std::int64_t> extents = each(o.kernel_size);
  extents.insert(extents.begin(), {in_channels, o.out_channels / o.groups});
  return Shape(extents);
}

// Returns the number of channels of an input with or without a batch. It decides a weight shape that is not known yet.
template <typename Extents>
std::int64_t channels_of(std::string_view name, const Tensor& x, const Parameter& weight, std::int64_t groups) {
  constexpr int axes = kKernelAxes<Extents>;
  constexpr const char* expected[] = {"", "(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)"};
  check(x.defined() && (x.shape().dim() == axes + 2 || x.shape().dim() == axes + 1),
        "{}: input is {}, expected {} axes {}", name, x, axes + 2, expected[axes]);
  const std::int64_t channels = x.size(-1 - axes);
  check(weight.shape_known() || channels % groups == 0, "{}: {} groups do not divide the input's {} channels", name,
        groups, channels);
  return channels;
}

// Returns x, padded unless the mode is zeros, and the padding that is left for the convolution.
template <typename Options, typename Extents>
std::pair<Tensor, Extents> padded(std::string_view name, const Tensor& x, const Options& o, const Extents& padding) {
  if (o.padding_mode == PadMode::zeros) return {x, padding};
  const auto amounts = each(padding), kernel = each(o.kernel_size), dilation = each(o.dilation),
             stride = each(o.stride);
  std::vector<std::int64_t> widths;
  for (std::size_t i = amounts.size(); i-- > 0;) {
    const bool same = amounts[i] == kSame;
    check(same ? stride[i] == 1 : amounts[i] >= 0,
          "{}: padding {} with stride {}, expected at least 0, or kSame with 1", name, amounts[i], stride[i]);
    const std::int64_t both = same ? dilation[i] * (kernel[i] - 1) : 2 * amounts[i];
    widths.push_back(both / 2);
    widths.push_back(both - both / 2);
  }
  return {pad(x, widths, o.padding_mode), 0};
}

}  // namespace

template <typename Extents>
ConvNd<Extents>::ConvNd(Options o)
    : weight(add_parameter("weight",
                           weight_options(weight_shape(checked(kConvNames[kKernelAxes<Extents>], o), o.in_channels)))),
      bias(o.bias ? add_parameter("bias", bias_options(o, weight)) : Parameter()), options_(o) {}

template <typename Extents>
ConvNd<Extents>::ConvNd(std::int64_t in_channels, std::int64_t out_channels, Extents kernel_size, Options more)
    : ConvNd(with_sizes(kConvNames[kKernelAxes<Extents>], more, in_channels, out_channels, kernel_size)) {}

template <typename Extents>
Tensor ConvNd<Extents>::forward(const Tensor& x) {
  constexpr int axes = kKernelAxes<Extents>;
  constexpr std::string_view name = kConvNames[axes];
  const Options& o = options_;
  const std::int64_t channels = channels_of<Extents>(name, x, weight, o.groups);
  if (!weight.shape_known()) weight.settle_shape(weight_shape(o, channels));
  const auto [in, padding] = padded(name, x, o, o.padding);
  const ConvNdOptions<Extents> options{o.stride, padding, o.dilation, o.groups};
  const Tensor b = o.bias ? bias.tensor() : Tensor();
  if constexpr (axes == 1) {
    return conv1d(in, weight, b, options);
  } else if constexpr (axes == 2) {
    return conv2d(in, weight, b, options);
  } else {
    return conv3d(in, weight, b, options);
  }
}

template class ConvNd<std::int64_t>;
template class ConvNd<HeightWidth>;
template class ConvNd<DepthHeightWidth>;

template <typename Extents>
ConvTransposeNd<Extents>::ConvTransposeNd(Options o)
    : weight(add_parameter(
          "weight", weight_options(weight_shape(checked(kTransposeNames[kKernelAxes<Extents>], o), o.in_channels)))),
      bias(o.bias ? add_parameter("bias", bias_options(o, weight)) : Parameter()), options_(o) {}

template <typename Extents>
ConvTransposeNd<Extents>::ConvTransposeNd(std::int64_t in_channels, std::int64_t out_channels, Extents kernel_size,
                                          Options more)
    : ConvTransposeNd(with_sizes(kTransposeNames[kKernelAxes<Extents>], more, in_channels, out_channels, kernel_size)) {
}

template <typename Extents>
Tensor ConvTransposeNd<Extents>::forward(const Tensor& x) {
  constexpr int axes = kKernelAxes<Extents>;
  const Options& o = options_;
  const std::int64_t channels = channels_of<Extents>(kTransposeNames[axes], x, weight, o.groups);
  if (!weight.shape_known()) weight.settle_shape(weight_shape(o, channels));
  const ConvTransposeNdOptions<Extents> options{o.stride, o.padding, o.output_padding, o.groups, o.dilation};
  const Tensor b = o.bias ? bias.tensor() : Tensor();
  if constexpr (axes == 1) {
    return conv_transpose1d(x, weight, b, options);
  } else {
    return conv_transpose2d(x, weight, b, options);
  }
}

template class ConvTransposeNd<std::int64_t>;
template class ConvTransposeNd<HeightWidth>;

}  // namespace lockstep
