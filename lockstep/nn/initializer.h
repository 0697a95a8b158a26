// How parameters start. Element i of a parameter depends on (seed, the parameter's name, i) alone: every device and
// every process gets the same bits without exchanging them.
#pragma once

#include <functional>

#include "lockstep/base/random.h"
#include "lockstep/tensor/array.h"

namespace LOCKSTEP_API lockstep {

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

// A normal distribution without what lies outside of [a, b], which is drawn again. The mean is at most two standard deviations
// outside.
struct TruncatedNormal {
  explicit TruncatedNormal(double stddev = 1, double mean = 0, double a = -2, double b = 2);
  void operator()(const Array& parameter, RandomKey key) const;

  double stddev, mean, a, b;
};

// For weights [out, in, ...]; fan_in = in * the size of the kernel, fan_out = out * that.

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

// Which of the fans: that of the forward pass, or that of the backward pass.
enum class FanMode : std::uint8_t { fan_in, fan_out };

struct KaimingOptions {
  // The gain is sqrt(2 / (1 + a^2)): a is the slope of the leaky ReLU behind the weight, 0 for ReLU. PyTorch's layers start
  // with KaimingUniform of sqrt(5).
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

// gain times a matrix of orthonormal rows or columns, whichever are fewer (Saxe, McClelland, and Ganguli 2013): axis 0 has the
// rows, all others together the columns.
struct Orthogonal {
  explicit Orthogonal(double gain = 1);
  void operator()(const Array& parameter, RandomKey key) const;

  double gain;
};

}  // namespace lockstep
