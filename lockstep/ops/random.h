// Random tensors and dropout.
#pragma once

#include "lockstep/base/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

// Overwrite y, element i in plain order with draw i under `key`.
void uniform_(const Tensor& y, RandomKey key, double low, double high);
void normal_(const Tensor& y, RandomKey key, double mean, double stddev);

// x * mask / (1 - p), each element dropped with probability p; its own backward under the same key.
Tensor dropout(const Tensor& x, double p, RandomKey key);

}  // namespace lockstep::ops
