#include "lockstep/autograd/rotary.h"

#include <numbers>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/base/plain_math.h"

namespace lockstep {

RotaryTables rotary_tables(std::int64_t dim, std::int64_t positions, double base) {
  check(dim > 0 && dim % 2 == 0, "rotary_tables: dim is {}, expected an even number above 0", dim);
  check(positions > 0, "rotary_tables: {} positions, expected at least 1", positions);
  check(base >= 1 && base <= 1e300, "rotary_tables: base is {}, expected 1 to 1e300", base);
  const std::int64_t pairs = dim / 2;
  std::vector<double> turns;  // of a position
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double part = static_cast<double>(2 * i) / static_cast<double>(dim);
    turns.push_back(plain_exp(-part * plain_log(base)) / (2 * std::numbers::pi));
  }
  std::vector<float> cos, sin;
  cos.reserve(static_cast<std::size_t>(positions * pairs)), sin.reserve(static_cast<std::size_t>(positions * pairs));
  for (std::int64_t p = 0; p < positions; ++p) {
    for (const double turn : turns) {
      const UnitVector v = plain_unit_vector_at(static_cast<double>(p) * turn);
      cos.push_back(static_cast<float>(v.cosine)), sin.push_back(static_cast<float>(v.sine));
    }
  }
  const Shape shape{positions, pairs};
  return {Tensor::from(cos, shape), Tensor::from(sin, shape)};
}

Tensor rotary_embedding(const Tensor& x, const Tensor& cos, const Tensor& sin, const RotaryOptions& options) {
  check(x.defined() && x.dim() > 0 && is_floating(x.dtype()) && x.size(-1) > 0 && x.size(-1) % 2 == 0,
        "rotary_embedding: input is {}, expected floating [.., D] with an even D", x);
  const std::int64_t pairs = x.size(-1) / 2;
  check(cos.defined() && sin.defined() && cos.dim() > 0 && cos.shape() == sin.shape() && cos.size(-1) == pairs &&
            is_floating(cos.dtype()) && is_floating(sin.dtype()),
        "rotary_embedding: cos is {} and sin {}, expected both floating [.., {}]", cos, sin, pairs);
  Tensor a, b;
  if (options.interleaved) {
    const Tensor split = unflatten(x, -1, {pairs, 2});
    a = select(split, -1, 0), b = select(split, -1, 1);
  } else {
    a = narrow(x, -1, 0, pairs), b = narrow(x, -1, pairs, pairs);
  }
  const Tensor c = beside(x, cos), s = beside(x, sin), first = a * c - b * s, second = a * s + b * c;
  check(first.shape() == a.shape(), "rotary_embedding: cos is {}, expected one that broadcasts to {}", cos, a.shape());
  const Tensor y = options.interleaved ? flatten(stack({first, second}, -1), -2) : cat({first, second}, -1);
  return cast(y, x.dtype());
}

}  // namespace lockstep
