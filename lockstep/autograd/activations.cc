#include "lockstep/autograd/activations.h"

#include <numbers>

#include "lockstep/autograd/elementwise.h"
#include "lockstep/autograd/shape.h"
#include "lockstep/autograd/unary.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {

Tensor relu(const Tensor& x) { return unary(UnaryOp::relu, x); }
Tensor leaky_relu(const Tensor& x, double negative_slope) { return unary({UnaryOp::leaky_relu, negative_slope}, x); }
Tensor elu(const Tensor& x, double alpha) { return unary({UnaryOp::elu, alpha}, x); }
Tensor Gelu::operator()(const Tensor& x, const GeluOptions& options) const {
  if (options.approximate == GeluApproximation::none) return unary(UnaryOp::gelu, x);
  check(x.defined(), "gelu: undefined tensor");
  if (is_half_dtype(x.dtype())) return cast((*this)(cast(x, DType::f32), options), x.dtype());
  // (1 + tanh(u)) / 2 = sigmoid(2 u)
  constexpr double kTwice = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return x * sigmoid(x * affine(square(x), 0.044715 * kTwice, kTwice));
}
Tensor silu(const Tensor& x) { return unary(UnaryOp::silu, x); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  check(beta > 0, "softplus: beta {}, expected above 0", beta);
  return unary({UnaryOp::softplus, beta, threshold}, x);
}
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::sigmoid, x); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::tanh, x); }

}  // namespace lockstep
