#include "lockstep/autograd/conv.h"

#include <algorithm>
#include <array>

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

// Whether x has no batch.
bool is_one_image(const Tensor& x, int dims) { return x.defined() && x.shape().dim() == dims; }

// With an input of a half type, kernels read f32 weights. A weight may be computed, and then be of a half type.
Tensor as_weight(const Tensor& x, const Tensor& w) {
  return w.defined() && x.defined() && is_half_dtype(w.dtype()) && is_half_dtype(x.dtype()) ? cast(w, DType::f32) : w;
}

// The options with numbers in place of kSame, and x with the zeros that symmetric padding cannot express.
struct PaddedInput {
  Tensor x;
  Conv2dOptions options;
};

PaddedInput padded_input(std::string_view name, const Tensor& x, const Tensor& w, Conv2dOptions o) {
  std::vector<std::int64_t> more(4);
  for (std::size_t i = 0; i < 2; ++i) {
    if (o.padding[i] != kSame || !w.defined() || w.shape().dim() != 4) continue;
    check(o.stride[i] == 1, "{}: stride {} with padding kSame, expected 1", name, o.stride[i]);
    ops::check_window(name, {o.dilation[i]});
    const std::int64_t zeros = o.dilation[i] * (w.size(2 + static_cast<int>(i)) - 1);
    o.padding[i] = zeros / 2;
    more[i == 0 ? 3 : 1] = zeros % 2;
  }
  const bool odd = more[1] > 0 || more[3] > 0;
  return {odd ? pad(x, more) : x, o};
}

OpTraits conv_traits(std::string_view kind, const auto& o) {
  return {kind,
          {{"stride", op_numbers(o.stride)},
           {"padding", op_numbers(o.padding)},
           {"dilation", op_numbers(o.dilation)},
           {"groups", o.groups}}};
}

Tensor convolution(std::string_view name, const Tensor& input, const Tensor& weight, const Tensor& bias_or_none,
                   const Conv2dOptions& given) {
  const PaddedInput padded = padded_input(name, autocast(input), weight, given);
  const Tensor& x = padded.x;
  const Conv2dOptions& options = padded.options;
  const Tensor w = as_weight(x, weight), bias = as_weight(x, bias_or_none);
  const bool saves_x = w.requires_grad(), saves_w = x.requires_grad();
  const auto part = [&](const Arrays& in) -> Lifted {
    // bf16 and f16 have f32 parameters.
    const DType dtype = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
    return {ops::conv2d(in[0], in[1], in[2], options, name),
            [x = SavedArray(saves_x, in[0]), w = SavedArray(saves_w, in[1]), x_shape = in[0].shape(),
             w_shape = in[1].shape(), dtype, options](const PartPass& p, const Array& dy) -> Arrays {
              Array dx;
              ops::ConvWeightGrads grads;
              if (p.needs(1)) {
                grads = ops::conv2d_backward_weights(x.get(p.name()), dy, w_shape, p.needs(2), options,
                                                     p.destination(1, dy.device()));
              } else if (p.needs(2)) {
                const std::int64_t channels = dy.size(1);
                grads.bias =
                    ops::reshape(ops::sum_to(ops::convert(dy, dtype, Layout::plain), {1, channels, 1, 1}), {channels});
              }
              if (p.needs(0)) dx = ops::conv2d_backward_data(dy, w.get(p.name()), x_shape, options);
              return {dx, grads.weight, grads.bias};
            }};
  };
  return lift(name, place_rows(name, {x}, {w, bias}), {x, w, bias}, part, [&] { return conv_traits("conv", options); });
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  if (is_one_image(x, 3)) return squeeze(conv2d(unsqueeze(x, 0), w, bias, options), 0);
  return convolution("conv2d", x, w, bias, options);
}

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dOptions& options) {
  if (is_one_image(x, 2)) return squeeze(conv1d(unsqueeze(x, 0), w, bias, options), 0);
  check(x.defined() && x.shape().dim() == 3, "conv1d: input is {}, expected 3 axes (N, C, L)", x);
  check(w.defined() && w.shape().dim() == 3, "conv1d: weight is {}, expected 3 axes (O, C / groups, K)", w);
  // An image of one row.
  const Tensor y = convolution("conv1d", unsqueeze(x, 2), unsqueeze(w, 2), bias,
                               {.stride = {1, options.stride},
                                .padding = {0, options.padding},
                                .dilation = {1, options.dilation},
                                .groups = options.groups});
  return squeeze(y, 2);
}

namespace {

// The extents of conv_transpose2d's result.
Shape transposed_shape(const Tensor& x, const Tensor& w, const ConvTranspose2dOptions& o) {
  check(x.defined() && x.shape().dim() == 4, "conv_transpose2d: input is {}, expected 4 axes (N, C, H, W)", x);
  check(w.defined() && w.shape().dim() == 4, "conv_transpose2d: weight is {}, expected 4 axes (C, O / groups, KH, KW)",
        w);
  check(is_floating(x.dtype()) && w.dtype() == (x.dtype() == DType::f64 ? DType::f64 : DType::f32),
        "conv_transpose2d: input is {}, weight is {}, expected one floating type (or bf16 or f16, and f32)", x, w);
  check(w.shape().numel() > 0, "conv_transpose2d: weight is {}, expected at least one element", w.shape());
  check(o.groups >= 1 && w.size(0) % o.groups == 0,
        "conv_transpose2d: {} groups for {} input channels, expected a number that divides them", o.groups, w.size(0));
  check(x.size(1) == w.size(0), "conv_transpose2d: input has {} channels, weight expects {}", x.size(1), w.size(0));
  Shape shape{x.size(0), w.size(1) * o.groups, 0, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    const int axis = 2 + static_cast<int>(i);
    check(o.stride[i] >= 1 && o.dilation[i] >= 1 && o.padding[i] >= 0,
          "conv_transpose2d: stride {}, dilation {}, padding {}, expected at least 1, 1, 0", o.stride[i], o.dilation[i],
          o.padding[i]);
    check(o.output_padding[i] >= 0 && o.output_padding[i] < std::max(o.stride[i], o.dilation[i]),
          "conv_transpose2d: output padding {}, expected at least 0 and below the stride, {}, or the dilation, {}",
          o.output_padding[i], o.stride[i], o.dilation[i]);
    ops::check_window("conv_transpose2d", {o.stride[i], o.dilation[i], o.padding[i], o.output_padding[i]});
    shape[axis] = (x.size(axis) - 1) * o.stride[i] - 2 * o.padding[i] + o.dilation[i] * (w.size(axis) - 1) +
                  o.output_padding[i] + 1;
    check(shape[axis] >= 1, "conv_transpose2d: padding {} leaves no output of {}, expected less padding", o.padding[i],
          x);
  }
  return shape;
}

}  // namespace

Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& o) {
  if (is_one_image(input, 3)) return squeeze(conv_transpose2d(unsqueeze(input, 0), weight, bias, o), 0);
  const Tensor x = autocast(input);
  const Tensor w = as_weight(x, weight);
  const Shape whole = transposed_shape(x, w, o);
  const std::array<std::int64_t, 2> more{o.output_padding[0] / o.stride[0], o.output_padding[1] / o.stride[1]};
  if (more[0] > 0 || more[1] > 0) {
    // A convolution of so large an output has a larger result than x: the elements that x lacks are 0.
    ConvTranspose2dOptions rest = o;
    for (std::size_t i = 0; i < 2; ++i) rest.output_padding[i] %= o.stride[i];
    return conv_transpose2d(pad(x, {0, more[1], 0, more[0]}), w, bias, rest);
  }
  const Conv2dOptions options{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
  const bool saves_x = w.requires_grad(), saves_w = x.requires_grad();
  const Placed placed = place_rows("conv_transpose2d", {x}, {w, bias});
  const auto part = [&](const Arrays& in) -> Lifted {
    Shape shape = whole;
    shape[0] = in[0].size(0);
    return {ops::conv2d_backward_data(in[0], in[1], shape, options),
            [x = SavedArray(saves_x, in[0]), w = SavedArray(saves_w, in[1]), w_shape = in[1].shape(), options](
                const PartPass& p, const Array& dy) -> Arrays {
              Array dx, dw;
              if (p.needs(0)) dx = ops::conv2d(dy, w.get(p.name()), {}, options);
              if (p.needs(1)) {
                dw = ops::conv2d_backward_weights(dy, x.get(p.name()), w_shape, false, options,
                                                  p.destination(1, dy.device()))
                         .weight;
              }
              return {dx, dw};
            }};
  };
  const Tensor y =
      lift("conv_transpose2d", placed, {x, w}, part, [&] { return conv_traits("conv_transpose", options); });
  if (!bias.defined()) return y;
  check(bias.shape() == Shape{whole[1]}, "conv_transpose2d: bias is {}, expected [{}]", bias.shape(), whole[1]);
  return y + cast(bias, y.dtype()).reshape({whole[1], 1, 1});
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvTranspose1dOptions& options) {
  if (is_one_image(x, 2)) return squeeze(conv_transpose1d(unsqueeze(x, 0), w, bias, options), 0);
  check(x.defined() && x.shape().dim() == 3, "conv_transpose1d: input is {}, expected 3 axes (N, C, L)", x);
  check(w.defined() && w.shape().dim() == 3, "conv_transpose1d: weight is {}, expected 3 axes (C, O / groups, K)", w);
  const Tensor y = conv_transpose2d(unsqueeze(x, 2), unsqueeze(w, 2), bias,
                                    {.stride = {1, options.stride},
                                     .padding = {0, options.padding},
                                     .output_padding = {0, options.output_padding},
                                     .groups = options.groups,
                                     .dilation = {1, options.dilation}});
  return squeeze(y, 2);
}

Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dOptions& o) {
  if (is_one_image(x, 4)) return squeeze(conv3d(unsqueeze(x, 0), w, bias, o), 0);
  check(x.defined() && x.shape().dim() == 5, "conv3d: input is {}, expected 5 axes (N, C, D, H, W)", x);
  check(w.defined() && w.shape().dim() == 5 && w.size(2) > 0,
        "conv3d: weight is {}, expected 5 axes (O, C / groups, KD, KH, KW)", w);
  const bool same = o.padding[0] == kSame;
  check(o.stride[0] >= 1 && o.dilation[0] >= 1 && (same ? o.stride[0] == 1 : o.padding[0] >= 0),
        "conv3d: stride {}, dilation {}, padding {}, expected at least 1, 1, 0, or kSame with a stride of 1",
        o.stride[0], o.dilation[0], o.padding[0]);
  ops::check_window("conv3d", {o.stride[0], o.dilation[0], same ? 0 : o.padding[0]});
  const std::int64_t zeros = same ? o.dilation[0] * (w.size(2) - 1) : 2 * o.padding[0];
  const std::int64_t reach = x.size(2) + zeros - o.dilation[0] * (w.size(2) - 1) - 1;
  check(reach >= 0, "conv3d: the kernel {} does not fit the padded input {}", w.shape(), x);
  const std::int64_t depth = reach / o.stride[0] + 1;
  const Tensor padded = pad(x, {0, 0, 0, 0, zeros / 2, zeros - zeros / 2});
  const Conv2dOptions options{.stride = o.stride.height_width(),
                              .padding = o.padding.height_width(),
                              .dilation = o.dilation.height_width(),
                              .groups = o.groups};
  Tensor y;
  for (std::int64_t k = 0; k < w.size(2); ++k) {
    const std::int64_t first = k * o.dilation[0];
    const Tensor layers = slice(padded, 2, first, first + (depth - 1) * o.stride[0] + 1, o.stride[0]);
    const Tensor images = flatten(permute(layers, {0, 2, 1, 3, 4}), 0, 1);  // [N D', C, H, W]
    const Tensor part = convolution("conv3d", images, select(w, 2, k), k == 0 ? bias : Tensor(), options);
    y = y.defined() ? y + part : part;
  }
  return permute(unflatten(y, 0, {x.size(0), depth}), {0, 2, 1, 3, 4});
}

}  // namespace lockstep
