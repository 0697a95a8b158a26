#include "lockstep/nn/initializers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/plain_math.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/random.h"

namespace lockstep {
namespace {

struct Fans {
  double in = 0;
  double out = 0;
};

Fans fans(std::string_view what, const Array& w) {
  check(w.shape().dim() >= 2, "{}: the parameter is {}, expected at least 2 axes (out, in, ...)", what, w.shape());
  double window = 1;
  for (int i = 2; i < w.shape().dim(); ++i) window *= static_cast<double>(w.size(i));
  return {static_cast<double>(w.size(1)) * window, static_cast<double>(w.size(0)) * window};
}

void check_gain(std::string_view what, double gain) {
  check(std::isfinite(gain), "{}: gain or slope {}, expected a finite number", what, gain);
}

double kaiming_deviation(const Array& w, const KaimingOptions& options) {
  const Fans f = fans("kaiming", w);
  return std::sqrt(2 / (1 + options.a * options.a) / (options.mode == FanMode::fan_in ? f.in : f.out));
}

// Element i of a parameter becomes value(i).
template <typename Value>
void fill_from_host(const Array& parameter, const Value& value) {
  std::vector<double> values(static_cast<std::size_t>(parameter.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  ops::copy_(Array::from(values, parameter.shape()), parameter);
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

Normal::Normal(double stddev, double mean) : stddev(stddev), mean(mean) {
  check(std::isfinite(stddev) && stddev >= 0 && std::isfinite(mean),
        "normal: standard deviation {}, mean {}, expected finite numbers and a deviation of at least 0", stddev, mean);
}

Uniform::Uniform(double scale) : low(-scale), high(scale) {
  check(std::isfinite(scale) && scale >= 0, "uniform: scale {}, expected a finite number, at least 0", scale);
}

Uniform::Uniform(double low, double high) : low(low), high(high) {
  check(std::isfinite(low) && std::isfinite(high) && low <= high,
        "uniform: from {} to {}, expected finite numbers in ascending order", low, high);
}

Constant::Constant(double value) : value(value) {
  check(std::isfinite(value), "constant: {}, expected a finite number", value);
}

void Normal::operator()(const Array& parameter, RandomKey key) const { ops::normal_(parameter, key, mean, stddev); }
void Uniform::operator()(const Array& parameter, RandomKey key) const { ops::uniform_(parameter, key, low, high); }
void Constant::operator()(const Array& parameter, RandomKey) const { ops::fill_(parameter, value); }

TruncatedNormal::TruncatedNormal(TruncatedNormalOptions options) : options(options) {
  const auto& [mean, stddev, a, b] = options;
  check(std::isfinite(stddev) && stddev > 0 && std::isfinite(mean) && std::isfinite(a) && std::isfinite(b) && a < b,
        "truncated normal: standard deviation {}, mean {}, from {} to {}, expected a deviation above 0 and finite "
        "numbers in ascending order",
        stddev, mean, a, b);
  check(mean > a - 2 * stddev && mean < b + 2 * stddev,
        "truncated normal: mean {}, expected it within two standard deviations ({}) of [{}, {}]", mean, stddev, a, b);
}

void TruncatedNormal::operator()(const Array& parameter, RandomKey key) const {
  const auto [mean, stddev, a, b] = options;
  // The bounds in standard deviations. Between near bounds, this is rejection sampling: a uniform number is kept with
  // the probability density(number) / density(likeliest number).
  const double low = (a - mean) / stddev, high = (b - mean) / stddev, likeliest = std::clamp(0.0, low, high);
  const bool near = high - low <= 4;
  fill_from_host(parameter, [&](std::uint64_t i) {
    for (std::uint64_t round = 0;; ++round) {
      const RandomKey draw = random_key(key.seed, {key.stream, round});
      if (near) {
        const double z = low + (high - low) * random_uniform(draw, 2 * i);
        const double kept = 1 - random_uniform(draw, 2 * i + 1);  // above 0
        if (plain_log(kept) * 2 <= likeliest * likeliest - z * z) return mean + stddev * z;
      } else if (const double z = random_normal(draw, i); z >= low && z <= high) {
        return mean + stddev * z;
      }
    }
  });
}

XavierUniform::XavierUniform(double gain) : gain(gain) { check_gain("xavier", gain); }
XavierNormal::XavierNormal(double gain) : gain(gain) { check_gain("xavier", gain); }

void XavierUniform::operator()(const Array& parameter, RandomKey key) const {
  Fans f = fans("xavier", parameter);
  double bound = gain * std::sqrt(6 / (f.in + f.out));
  ops::uniform_(parameter, key, -bound, bound);
}

void XavierNormal::operator()(const Array& parameter, RandomKey key) const {
  const Fans f = fans("xavier", parameter);
  ops::normal_(parameter, key, 0, gain * std::sqrt(2 / (f.in + f.out)));
}

KaimingUniform::KaimingUniform(KaimingOptions options) : options(options) { check_gain("kaiming", options.a); }
KaimingNormal::KaimingNormal(KaimingOptions options) : options(options) { check_gain("kaiming", options.a); }

void KaimingUniform::operator()(const Array& parameter, RandomKey key) const {
  const double bound = std::sqrt(3.0) * kaiming_deviation(parameter, options);
  ops::uniform_(parameter, key, -bound, bound);
}

void KaimingNormal::operator()(const Array& parameter, RandomKey key) const {
  ops::normal_(parameter, key, 0, kaiming_deviation(parameter, options));
}

Orthogonal::Orthogonal(double gain) : gain(gain) { check_gain("orthogonal", gain); }

// The Gram-Schmidt process on normal numbers, twice for each vector: the second pass removes the components along other
// vectors that rounding left in the first pass.
void Orthogonal::operator()(const Array& parameter, RandomKey key) const {
  check(parameter.shape().dim() >= 2, "orthogonal: the parameter is {}, expected at least 2 axes (out, in, ...)",
        parameter.shape());
  const auto numel = static_cast<std::size_t>(parameter.shape().numel());
  const auto rows = static_cast<std::size_t>(parameter.size(0)), columns = rows == 0 ? 0 : numel / rows;
  const std::size_t count = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<std::vector<double>> vectors(count, std::vector<double>(length));
  for (std::size_t v = 0; v < count; ++v) {
    auto& vector = vectors[v];
    for (std::size_t i = 0; i < length; ++i) vector[i] = random_normal(key, v * length + i);
    for (std::size_t other = 0; other < 2 * v; ++other) {
      const auto& unit = vectors[other % v];
      const double along = dot(vector, unit);
      for (std::size_t i = 0; i < length; ++i) vector[i] -= along * unit[i];
    }
    const double norm = std::sqrt(dot(vector, vector));
    for (double& x : vector) x /= norm;
  }
  fill_from_host(parameter, [&](std::uint64_t i) {
    const std::size_t row = i / columns, column = i % columns;
    return gain * (rows <= columns ? vectors[row][column] : vectors[column][row]);
  });
}

}  // namespace lockstep
