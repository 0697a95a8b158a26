// Dropout. nn/dropout.h has it as a module, which drops in training only.
#pragma once

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Drops each element with probability p and scales the others by 1 / (1 - p). The key comes from the device's random
// state: (seed, step, shard, operation). p = 1 drops all.
Tensor dropout(const Tensor& x, double p);
// Drop whole channels of sequences [N, C, L], or of images [N, C, H, W]. dropout2d() also takes vectors [N, C].
Tensor dropout1d(const Tensor& x, double p);
Tensor dropout2d(const Tensor& x, double p);

}  // namespace lockstep
