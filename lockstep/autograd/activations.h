// Activations. nn/activations.h has them as modules.
//
//   Tensor y = linear(relu(linear(x, w1, b1)), w2, b2);
#pragma once

#include <cstdint>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1);
enum class GeluApproximation : std::uint8_t { none, tanh };
struct GeluOptions {
  GeluApproximation approximate = GeluApproximation::none;
};
// x Phi(x), or approximately x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as GPT-2 computes it. It is an object,
// not a function with a default argument, so that it can be passed as a function of one tensor: {.activation = gelu}.
struct Gelu {
  Tensor operator()(const Tensor& x, const GeluOptions& options = {}) const;
};
inline constexpr Gelu gelu{};
Tensor silu(const Tensor& x);
// log(1 + exp(beta x)) / beta, or x if beta x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
// a sigmoid(b) for the halves a and b of x along an axis (Dauphin et al. 2017).
Tensor glu(const Tensor& x, int dim = -1);
// x limited to [min_val, max_val]. At the limits, the gradient is 0, where that of clamp() is 1.
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1);
Tensor relu6(const Tensor& x);        // hardtanh(x, 0, 6)
Tensor hardsigmoid(const Tensor& x);  // relu6(x + 3) / 6
Tensor hardswish(const Tensor& x);    // x clamp(x + 3, 0, 6) / 6
// x where it is above 0, weight x elsewhere. The weight is [1], or [C] for the channels on axis 1.
Tensor prelu(const Tensor& x, const Tensor& weight);
Tensor selu(const Tensor& x);  // 1.0507 elu(x, 1.6733) (Klambauer et al. 2017)
// x where it is above 0, alpha (exp(x / alpha) - 1) elsewhere.
Tensor celu(const Tensor& x, double alpha = 1);
Tensor mish(const Tensor& x);        // x tanh(softplus(x))
Tensor logsigmoid(const Tensor& x);  // log(sigmoid(x)) without overflow
Tensor softsign(const Tensor& x);    // x / (1 + |x|)
Tensor tanhshrink(const Tensor& x);  // x - tanh(x)
// x where |x| is above lambd, 0 elsewhere. softshrink() also moves x toward 0 by lambd.
Tensor hardshrink(const Tensor& x, double lambd = 0.5);
Tensor softshrink(const Tensor& x, double lambd = 0.5);
// x where it is above the threshold, `value` elsewhere.
Tensor threshold(const Tensor& x, double threshold, double value);

}  // namespace lockstep
