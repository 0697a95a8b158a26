// Initial values of parameters. Element i of a parameter depends only on the seed, the parameter's name, and i, so
// every device and every process gets the same bits without exchanging them.
//
//   net.initialize(Normal(0.01), devices);
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/base/random.h"
#include "lockstep/tensor/array.h"

namespace LOCKSTEP_API lockstep {

// Overwrites the elements of a parameter.
using Initializer = std::function<void(const Array& parameter, RandomKey key)>;

// All arguments must be finite. Standard deviations are at least 0; that of TruncatedNormal is above 0.

struct Normal {
  explicit Normal(double stddev = 0.01, double mean = 0);
  void operator()(const Array& parameter, RandomKey key) const;

  double stddev, mean;
};

// Uniform in [low, high), or in [-scale, scale). low is at most high; the scale is at least 0.
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

struct TruncatedNormalOptions {
  double mean = 0, stddev = 1, a = -2, b = 2;
};

// A normal distribution limited to [a, b]: values outside are drawn again. Throws unless the mean lies within two
// standard deviations of [a, b].
//
//   TruncatedNormal({.stddev = 0.02})
struct TruncatedNormal {
  explicit TruncatedNormal(TruncatedNormalOptions options = {});
  void operator()(const Array& parameter, RandomKey key) const;

  TruncatedNormalOptions options;
};

// The following initializers need weights [out, in, ...]. fan_in = in * kernel size; fan_out = out * kernel size.

// Uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
struct XavierUniform {
  explicit XavierUniform(double gain = 1);
  void operator()(const Array& parameter, RandomKey key) const;

  double gain;
};
using Xavier = XavierUniform;

// Normal with standard deviation gain sqrt(2 / (fan_in + fan_out)).
struct XavierNormal {
  explicit XavierNormal(double gain = 1);
  void operator()(const Array& parameter, RandomKey key) const;

  double gain;
};

// fan_in preserves the variance in the forward pass, fan_out in the backward pass.
enum class FanMode : std::uint8_t { fan_in, fan_out };

struct KaimingOptions {
  // The slope of the leaky ReLU after the weight; 0 for ReLU. The gain is sqrt(2 / (1 + a^2)). PyTorch's layers start
  // with KaimingUniform and a = sqrt(5).
  double a = 0;
  FanMode mode = FanMode::fan_in;
};

// Uniform in +-gain sqrt(3 / fan) (He et al. 2015).
struct KaimingUniform {
  explicit KaimingUniform(KaimingOptions options = {});
  void operator()(const Array& parameter, RandomKey key) const;

  KaimingOptions options;
};

// Normal with standard deviation gain / sqrt(fan).
struct KaimingNormal {
  explicit KaimingNormal(KaimingOptions options = {});
  void operator()(const Array& parameter, RandomKey key) const;

  KaimingOptions options;
};
using Kaiming = KaimingNormal;

// gain times a matrix whose rows or columns, whichever are fewer, are orthonormal (Saxe, McClelland, and Ganguli 2013).
// Axis 0 has the rows; the other axes together have the columns.
struct Orthogonal {
  explicit Orthogonal(double gain = 1);
  void operator()(const Array& parameter, RandomKey key) const;

  double gain;
};

}  // namespace lockstep
