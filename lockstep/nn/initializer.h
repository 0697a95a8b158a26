// How parameters start. Element i of a parameter depends on (seed, the parameter's name, i) alone: every device and
// every process gets the same bits without exchanging them.
#pragma once

#include <functional>

#include "lockstep/base/random.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

// Overwrites a parameter.
using Initializer = std::function<void(const Array& parameter, RandomKey key)>;

// Arguments have to be finite.

// A standard deviation of at least 0.
struct Normal {
  explicit Normal(double stddev = 0.01, double mean = 0);
  void operator()(const Array& parameter, RandomKey key) const;

  double stddev, mean;
};

// In [low, high), or [-scale, scale) with a scale of at least 0.
struct Uniform {
  explicit Uniform(double scale = 0.07);
  Uniform(double low, double high);
  void operator()(const Array& parameter, RandomKey key) const;

  double low, high;
};

struct Constant {
  explicit Constant(double value = 0);
  void operator()(const Array& parameter, RandomKey key) const;

  double value;
};

// For weights [out, in, ...]; fan_in = in * the size of the kernel, fan_out = out * that.

// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
struct Xavier {
  void operator()(const Array& parameter, RandomKey key) const;
};

// Normal with standard deviation sqrt(2 / fan_in) (He et al. 2015).
struct Kaiming {
  void operator()(const Array& parameter, RandomKey key) const;
};

}  // namespace lockstep
