// Arrays for tests: random ones, the same in every run, and their distance.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/ops/copy.h"
#include "lockstep/tensor/array.h"

namespace lockstep::testing {

// Random numbers for a test.
class Random {
 public:
  explicit Random(std::uint64_t seed) : key_(random_key(seed, {})) {}
  double uniform(double low, double high) { return low + (high - low) * random_uniform(key_, next_++); }
  // In [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_below(key_, next_++, static_cast<std::uint64_t>(high - low + 1)));
  }
  std::vector<double> uniforms(std::int64_t n, double low = -1, double high = 1) {
    std::vector<double> values(static_cast<std::size_t>(n));
    for (double& v : values) v = uniform(low, high);
    return values;
  }
  // In host memory.
  Array floats(const Shape& shape, double low = -1, double high = 1) {
    std::vector<double> values = uniforms(shape.numel(), low, high);
    return Array::from(std::vector<float>(values.begin(), values.end()), shape);
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

// On `device`, rounded to `dtype`.
inline Array make_tensor(const std::vector<double>& values, const Shape& shape, Device device,
                         DType dtype = DType::f32) {
  return ops::convert(ops::to_device(Array::from(values, shape), device), dtype, Layout::plain);
}

// In plain order, whatever the type.
inline std::vector<double> values(const Array& t) {
  return ops::host_readable(ops::convert(t, DType::f64, Layout::plain)).to_vector<double>();
}

// ‖a − b‖ / ‖b‖; ‖a‖ where b is zero. Infinite if the lengths differ or a has NaN.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  double d = std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1);
  return std::isnan(d) ? INFINITY : d;
}

}  // namespace lockstep::testing
