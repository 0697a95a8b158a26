#include "lockstep/ops/conv.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/joined_scope.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/prepared.h"

namespace lockstep::ops {
namespace {

Array preferred(const Array& x) {
  Layout layout = backend_of(x.device(), "conv2d").conv().preferred_layout(x.dtype(), x.size(1));
  return to_layout(x, layout);
}

Array empty_preferred(const Shape& shape, DType dtype, Device device) {
  Layout layout = backend_of(device, "conv2d").conv().preferred_layout(dtype, shape[1]);
  return empty(shape, dtype, device, layout);
}

// With an input of a half type, weights and biases are f32.
void check_weight_type(std::string_view what, std::string_view which, DType x, const Array& w) {
  const DType expected = x == DType::f64 ? DType::f64 : DType::f32;
  check(w.dtype() == expected, "{}: input is {}, {} is {}, expected {}", what, name(x), which, name(w.dtype()),
        name(expected));
}

// Kernels read weights in plain order. A weight that another convolution computed may have that convolution's layout.
Array plain_weight(const Array& w) { return to_layout(w, Layout::plain); }

}  // namespace

Array conv2d(const Array& x, const Array& w, const Array& bias, const Conv2dOptions& options, std::string_view what) {
  check_dim(what, "input", x, 4, "(N, C, H, W)");
  check_dim(what, "weight", w, 4, "(O, C / groups, KH, KW)");
  check(w.numel() > 0, "{}: weight is {}, expected at least one element", what, w.shape());
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type", what, name(x.dtype()));
  check_weight_type(what, "weight", x.dtype(), w);
  check(options.groups >= 1 && w.size(0) % options.groups == 0,
        "{}: {} groups for {} output channels, expected a number that divides them", what, options.groups, w.size(0));
  check(x.size(1) == w.size(1) * options.groups, "{}: input has {} channels, weight expects {}", what, x.size(1),
        w.size(1) * options.groups);
  Shape shape{x.size(0), w.size(0), 0, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    int axis = 2 + static_cast<int>(i);
    check(options.stride[i] >= 1 && options.dilation[i] >= 1 && options.padding[i] >= 0,
          "{}: stride {}, dilation {}, padding {}, expected at least 1, 1, 0", what, options.stride[i],
          options.dilation[i], options.padding[i]);
    check_window(what, {options.stride[i], options.dilation[i], options.padding[i]});
    std::int64_t reach = x.size(axis) + 2 * options.padding[i] - options.dilation[i] * (w.size(axis) - 1) - 1;
    check(reach >= 0, "{}: the kernel ({} wide, dilation {}) does not fit the padded input ({} wide)", what,
          w.size(axis), options.dilation[i], x.size(axis) + 2 * options.padding[i]);
    shape[axis] = reach / options.stride[i] + 1;
  }
  if (bias.defined()) {
    check_weight_type(what, "bias", x.dtype(), bias);
    check(bias.shape() == Shape{w.size(0)}, "{}: bias is {}, expected [{}]", what, bias.shape(), w.size(0));
  }
  Array in = preferred(x);
  Array y = empty_preferred(shape, x.dtype(), x.device());
  const Array weight = plain_weight(w);
  const Shape one = JoinedScope::one_of(x.shape());
  const Array prepared = prepared_weights(weight, ConvPass::forward, options, one, x.dtype());
  launch("conv2d", {in, weight, prepared, bias}, {y},
         kernels::Conv{options, in.view(), WeightView(weight.view(), prepared.view()), bias.view(), y.view(), one[0]});
  return y;
}

Array conv2d_backward_data(const Array& dy, const Array& w, const Shape& x_shape, const Conv2dOptions& options) {
  Array g = preferred(dy);
  Array dx = empty_preferred(x_shape, dy.dtype(), dy.device());
  const Array weight = plain_weight(w);
  const Shape one = JoinedScope::one_of(x_shape);
  const Array prepared = prepared_weights(weight, ConvPass::backward_data, options, one, dy.dtype());
  launch("conv2d backward data", {g, weight, prepared}, {dx},
         kernels::ConvBackwardData{options, g.view(), WeightView(weight.view(), prepared.view()), dx.view(), one[0]});
  return dx;
}

ConvWeightGrads conv2d_backward_weights(const Array& x, const Array& dy, const Shape& w_shape, bool with_bias,
                                        const Conv2dOptions& options, const Array& into) {
  Array in = preferred(x);
  Array g = preferred(dy);
  DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  ConvWeightGrads grads{empty_or(into, "conv2d backward weights", w_shape, dtype, x.device()), {}};
  if (with_bias) grads.bias = empty({w_shape[0]}, dtype, x.device());
  launch("conv2d backward weights", {in, g}, {grads.weight, grads.bias},
         kernels::ConvBackwardWeights{options, in.view(), g.view(), grads.weight.view(), grads.bias.view()});
  return grads;
}

}  // namespace lockstep::ops
