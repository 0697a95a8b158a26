// Internal: the initial values of PyTorch's layers, for ParameterOptions::default_initializer.
#pragma once

#include <cmath>

#include "lockstep/nn/parameter.h"

namespace lockstep {

// Initial values of a weight [out, in, kernel...]: uniform in +-1 / sqrt(in * kernel).
inline Initializer default_weight() { return KaimingUniform({.a = std::sqrt(5.0)}); }

// Initial values of the bias of the layer with this weight: uniform in +-1 / sqrt(in * kernel).
inline Initializer default_bias(const Parameter& weight) {
  return [weight](const Array& bias, RandomKey key) {
    const Shape& shape = weight.shape();
    check(weight.shape_known(),
          "its values follow from the shape of {}, {} (0: not known), which the first pass settles", weight.name(),
          shape);
    const auto inputs = static_cast<double>(shape.numel() / shape[0]);
    Uniform(1 / std::sqrt(inputs))(bias, key);
  };
}

}  // namespace lockstep
