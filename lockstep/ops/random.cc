#include "lockstep/ops/random.h"

#include "lockstep/ops/launch.h"

namespace lockstep::ops {

void uniform_(const Tensor& y, RandomKey key, double low, double high) {
  launch("uniform", {}, {y},
         [=, y = y.view()](Backend& b, KernelContext& c) { b.random().uniform(c, key, low, high, y); });
}

void normal_(const Tensor& y, RandomKey key, double mean, double stddev) {
  launch("normal", {}, {y},
         [=, y = y.view()](Backend& b, KernelContext& c) { b.random().normal(c, key, mean, stddev, y); });
}

Tensor dropout(const Tensor& x, double p, RandomKey key) {
  check(p >= 0 && p < 1, "dropout: probability {}, expected at least 0 and below 1", p);
  Tensor y = empty_like(x);
  launch("dropout", {x}, {y},
         [=, x = x.view(), y = y.view()](Backend& b, KernelContext& c) { b.random().dropout(c, key, 1 - p, x, y); });
  return y;
}

}  // namespace lockstep::ops
