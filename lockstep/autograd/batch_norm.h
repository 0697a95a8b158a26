// Internal: the operations behind the batch norm of nn/batch_norm.h. Samples are on axis 0, channels on axis 1.
#pragma once

#include <span>
#include <vector>

#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/ops/norm.h"

namespace lockstep {

struct BatchNormOptions {
  double eps = 1e-5;
  // Fused: y = max(0, y).
  bool relu = false;
};
// Normalizes by each shard's own statistics. `stats`, if not null, receives them, one for each shard of this process.
// residual, if defined, is added before the ReLU.
Tensor batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& residual,
                        const BatchNormOptions& options, std::vector<ops::BatchStats>* stats);
// Normalizes by the statistics of all shards, merged in their tree. Gradients flow back through the shared statistics.
// Every process must call it.
Tensor batch_norm_synchronized(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& residual,
                               const BatchNormOptions& options, ops::BatchStats* stats);
// Merges the statistics of all shards. parts[s] is from shard s, undefined for shards of other processes. `values` is
// the number of values that each sample adds to a channel. Every process must call it.
std::vector<ops::BatchStats> gather_stats(const Placement& at, std::span<const ops::BatchStats> parts,
                                          std::int64_t values);
// Normalizes by running statistics.
Tensor batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                       const Tensor& running_var, const Tensor& residual, const BatchNormOptions& options);

}  // namespace lockstep
