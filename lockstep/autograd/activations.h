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

}  // namespace lockstep
