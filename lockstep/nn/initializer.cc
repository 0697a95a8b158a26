#include "lockstep/nn/initializer.h"

#include <cmath>

#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/random.h"

namespace lockstep {
namespace {

struct Fans {
  double in = 0;
  double out = 0;
};

Fans fans(std::string_view what, const Array& w) {
  check(w.shape().rank() >= 2, "{}: the parameter is {}, expected at least 2 axes (out, in, ...)", what,
        w.shape().str());
  double window = 1;
  for (int i = 2; i < w.shape().rank(); ++i) window *= static_cast<double>(w.size(i));
  return {static_cast<double>(w.size(1)) * window, static_cast<double>(w.size(0)) * window};
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

void Xavier::operator()(const Array& parameter, RandomKey key) const {
  Fans f = fans("xavier", parameter);
  double bound = std::sqrt(6 / (f.in + f.out));
  ops::uniform_(parameter, key, -bound, bound);
}

void Kaiming::operator()(const Array& parameter, RandomKey key) const {
  ops::normal_(parameter, key, 0, std::sqrt(2 / fans("kaiming", parameter).in));
}

}  // namespace lockstep
