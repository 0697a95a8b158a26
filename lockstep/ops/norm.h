// Batch normalization in the steps that shards need; see backend/norm.h for the formulas.
#pragma once

#include "lockstep/backend/norm.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

// Statistics of one shard or of several merged: n values per channel.
struct BatchStats {
  std::int64_t n = 0;
  Tensor mean;  // [C]
  Tensor m2;    // [C]

  BatchNormStats view() const { return {n, mean.view(), m2.view()}; }
};

BatchStats batch_norm_stats(const Tensor& x);
// Merged in the shards' tree; parts[s] is shard s's, undefined where the shard is missing. Parts may lie on other
// devices of one memory domain. On `device`, in its urgent lane if wanted.
BatchStats merge_batch_stats(std::span<const BatchStats> parts, Device device, bool urgent);

struct BatchNormApply {
  double eps = 1e-5;
  bool relu = false;
};

// residual may be undefined.
Tensor batch_norm(const Tensor& x, const BatchStats& stats, const Tensor& gamma, const Tensor& beta,
                  const Tensor& residual, const BatchNormApply& apply);

struct BatchNormSums {
  Tensor g;       // [C]: the gradient of beta
  Tensor g_xhat;  // [C]: the gradient of gamma
};
// y is the output where a ReLU was fused, else undefined.
BatchNormSums batch_norm_backward_stats(const Tensor& dy, const Tensor& x, const Tensor& y, const BatchStats& stats,
                                        double eps);
struct BatchNormGrads {
  Tensor x;
  Tensor residual;  // undefined unless asked for
};
BatchNormGrads batch_norm_backward_data(const Tensor& dy, const Tensor& x, const Tensor& y, const BatchStats& stats,
                                        double eps, const Tensor& gamma, const BatchNormSums& sums,
                                        bool with_residual);

// Moves the running statistics towards those of a batch and counts the batch; in the urgent lane.
void batch_norm_commit(const BatchStats& stats, double momentum, const Tensor& running_mean,
                       const Tensor& running_var, const Tensor& batches);

}  // namespace lockstep::ops
