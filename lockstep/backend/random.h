// Random numbers from a counter: element i of a draw depends on (key, i) alone, never on threads or order.
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/base/random.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

class RandomKernels {
 public:
  virtual ~RandomKernels() = default;

  // Element i (in plain order) is Philox's draw i under `key`; see base/random.h. Any floating dtype, plain.
  virtual void uniform(KernelContext&, RandomKey key, double low, double high, const View& y) = 0;
  virtual void normal(KernelContext&, RandomKey key, double mean, double stddev, const View& y) = 0;

  // y = x * mask / keep, where element i (in memory order) is kept with probability `keep`; dropout, and its own
  // backward when called again under the same key. Same shape, dtype and layout; y may be x.
  virtual void dropout(KernelContext&, RandomKey key, double keep, const View& x, const View& y) = 0;
};

}  // namespace lockstep
