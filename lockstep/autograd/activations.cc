#include "lockstep/autograd/activations.h"

#include <numbers>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/promote.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/autograd/unary.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

void check_activated(std::string_view name, const Tensor& x) {
  check(x.defined() && is_floating(x.dtype()), "{}: input is {}, expected a floating type: cast() it", name, x);
}

// Limits x to [low, high]. The gradient is 0 at the limits and beyond them.
Tensor within(std::string_view name, const Tensor& x, double low, double high) {
  check_activated(name, x);
  const auto part = [=](const Arrays& in) -> Lifted {
    Array y = ops::unary({UnaryOp::clamp, low, high}, in[0]);
    return {
        y, [y = SavedArray(y), low, high](const PartPass& p, const Array& dy) -> Arrays {
          const Array& at = y.get(p.name());
          const auto without = [](const Array& limited, const Array& g) {
            return ops::where(limited, ops::scalar_like(g, 0), g);
          };
          // The limits, rounded to the type of y.
          const Array first = ops::scalar_like(at, low), last = ops::scalar_like(at, high);
          return {without(ops::compare(CompareOp::le, last, at), without(ops::compare(CompareOp::le, at, first), dy))};
        }};
  };
  return lift(name, place_as(name, x), {x}, part, [&] { return OpTraits{"clamp", {{"a", low}, {"b", high}}}; });
}

// Computes half types in f32, and rounds once: products inside may exceed the range of f16, also those of gradients.
template <typename F>
Tensor in_f32(const Tensor& x, const F& f) {
  return is_half_dtype(x.dtype()) ? cast(f(cast(x, DType::f32)), x.dtype()) : f(x);
}

}  // namespace

Tensor relu(const Tensor& x) { return unary(UnaryOp::relu, x); }
Tensor leaky_relu(const Tensor& x, double negative_slope) { return unary({UnaryOp::leaky_relu, negative_slope}, x); }
Tensor elu(const Tensor& x, double alpha) { return unary({UnaryOp::elu, alpha}, x); }
Tensor Gelu::operator()(const Tensor& x, const GeluOptions& options) const {
  if (options.approximate == GeluApproximation::none) return unary(UnaryOp::gelu, x);
  check(x.defined(), "gelu: undefined tensor");
  // (1 + tanh(u)) / 2 = sigmoid(2 u)
  constexpr double kTwice = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return in_f32(x, [](const Tensor& x) { return x * sigmoid(x * affine(square(x), 0.044715 * kTwice, kTwice)); });
}
Tensor silu(const Tensor& x) { return unary(UnaryOp::silu, x); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  check(beta > 0, "softplus: beta {}, expected above 0", beta);
  return unary({UnaryOp::softplus, beta, threshold}, x);
}
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::sigmoid, promoted_to_floating(x)); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::tanh, promoted_to_floating(x)); }
Tensor glu(const Tensor& x, int dim) {
  check_activated("glu", x);
  const int axis = ops::resolve_axis("glu", x.shape(), dim);
  check(x.size(axis) % 2 == 0, "glu: {} elements along axis {} of {}, expected an even number", x.size(axis), axis, x);
  const std::int64_t half = x.size(axis) / 2;
  return in_f32(x, [=](const Tensor& x) { return narrow(x, axis, 0, half) * sigmoid(narrow(x, axis, half, half)); });
}
Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  check(min_val < max_val, "hardtanh: limits {} and {}, expected the lower one first", min_val, max_val);
  return within("hardtanh", x, min_val, max_val);
}
Tensor relu6(const Tensor& x) { return within("relu6", x, 0, 6); }
Tensor hardsigmoid(const Tensor& x) {
  check_activated("hardsigmoid", x);
  // Limits x before the sum, which rounds: the largest number below 3 must count as inside the limits.
  return in_f32(x, [](const Tensor& x) { return (within("hardsigmoid", x, -3, 3) + 3.0) / 6.0; });
}
Tensor hardswish(const Tensor& x) {
  check_activated("hardswish", x);
  return in_f32(x, [](const Tensor& x) { return x * (clamp(x, -3, 3) + 3.0) / 6.0; });
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  check_activated("prelu", x);
  if (weight.defined() && weight.dim() == 0) return prelu(x, weight.reshape({1}));
  const int dims = x.shape().dim();
  check(weight.defined() && weight.shape().dim() == 1 &&
            (weight.size(0) == 1 || (dims > 1 && weight.size(0) == x.size(1))),
        "prelu: weight is {}, expected [1], or [C] for the channels on axis 1 of {}", weight, x);
  Shape shape(std::vector<std::int64_t>(static_cast<std::size_t>(dims > 1 ? dims - 1 : dims), 1));
  if (shape.dim() > 0) shape[0] = weight.size(0);
  return in_f32(x, [rounded = cast(weight, x.dtype()).reshape(shape)](const Tensor& x) {
    return where(gt(x, 0.0), x, x * cast(rounded, x.dtype()));
  });
}
Tensor selu(const Tensor& x) {
  check_activated("selu", x);
  return in_f32(
      x, [](const Tensor& x) { return elu(x, 1.6732632423543772848170429916717) * 1.0507009873554804934193349852946; });
}
Tensor celu(const Tensor& x, double alpha) {
  check_activated("celu", x);
  check(alpha != 0, "celu: alpha 0, expected another number");
  if (alpha == 1) return elu(x);
  return in_f32(x, [=](const Tensor& x) { return where(gt(x, 0.0), x, elu(x / alpha) * alpha); });
}
Tensor mish(const Tensor& x) {
  check_activated("mish", x);
  return in_f32(x, [](const Tensor& x) { return x * tanh(softplus(x)); });
}
Tensor logsigmoid(const Tensor& x) {
  check_activated("logsigmoid", x);
  // Above the threshold, softplus(x) is x, which is exact in f64, too.
  return -softplus(-x, 1, 80);
}
Tensor softsign(const Tensor& x) {
  check_activated("softsign", x);
  return in_f32(x, [](const Tensor& x) { return x / (abs(x) + 1.0); });
}
Tensor tanhshrink(const Tensor& x) {
  check_activated("tanhshrink", x);
  return in_f32(x, [](const Tensor& x) { return x - tanh(x); });
}
Tensor hardshrink(const Tensor& x, double lambd) {
  check_activated("hardshrink", x);
  return where(logical_and(ge(x, -lambd), le(x, lambd)), 0.0, x);
}
Tensor softshrink(const Tensor& x, double lambd) {
  check_activated("softshrink", x);
  check(lambd >= 0, "softshrink: lambd {}, expected at least 0", lambd);
  return x - clamp(x, -lambd, lambd);
}
Tensor threshold(const Tensor& x, double threshold, double value) {
  check_activated("threshold", x);
  return where(le(x, threshold), value, x);
}

}  // namespace lockstep
