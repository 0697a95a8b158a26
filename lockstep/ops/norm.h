// Internal: batch normalization in the steps that shards need, layer norm, and RMS norm; see backend/norm.h for the
// formulas.
#pragma once

#include "lockstep/backend/norm.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Statistics of one shard or of several merged: n values per channel.
struct BatchStats {
  std::int64_t n = 0;
  Array mean;  // [C]
  Array m2;    // [C]

  BatchNormStats view() const { return {n, mean.view(), m2.view()}; }
};

BatchStats batch_norm_stats(const Array& x);
// Merges statistics in the shards' tree; parts[s] is from shard s, undefined where the shard is missing. Parts may lie
// on other devices of one memory domain. Runs on `device`, on its urgent lane if `urgent`.
BatchStats merge_batch_stats(std::span<const BatchStats> parts, Device device, bool urgent);

struct BatchNormApply {
  double eps = 1e-5;
  bool relu = false;
};

// residual may be undefined.
Array batch_norm(const Array& x, const BatchStats& stats, const Array& gamma, const Array& beta, const Array& residual,
                 const BatchNormApply& apply);

struct BatchNormSums {
  Array g;       // [C]: the gradient of beta
  Array g_xhat;  // [C]: the gradient of gamma
};
// y is the output where a ReLU was fused, else undefined.
BatchNormSums batch_norm_backward_stats(const Array& dy, const Array& x, const Array& y, const BatchStats& stats,
                                        double eps);
struct BatchNormGrads {
  Array x;
  Array residual;  // undefined unless requested
};
BatchNormGrads batch_norm_backward_data(const Array& dy, const Array& x, const Array& y, const BatchStats& stats,
                                        double eps, const Array& gamma, const BatchNormSums& sums, bool with_residual);

// Moves the running statistics toward the statistics of a batch and counts the batch, on the urgent lane.
void batch_norm_commit(const BatchStats& stats, double momentum, const Array& running_mean, const Array& running_var,
                       const Array& batches);

struct RowNormOptions {
  Shape row;  // the extents of the last axes, which make up a row
  double eps = 1e-5;
  bool centered = true;  // layer norm; else RMS norm
};

struct RowNorm {
  Array y;     // as x
  Array mean;  // [rows]; undefined in RMS norm
  Array rstd;  // [rows]
};
// weight and bias may be undefined.
RowNorm row_norm(std::string_view what, const Array& x, const Array& weight, const Array& bias,
                 const RowNormOptions& options);

struct RowNormGrads {
  Array x, weight, bias;  // undefined unless requested
};
struct RowNormNeeds {
  bool x = true, weight = true, bias = true;
};
// `saved` is the result of row_norm(); its y is not read.
RowNormGrads row_norm_backward(std::string_view what, const Array& dy, const Array& x, const RowNorm& saved,
                               const Array& weight, const RowNormNeeds& needs, const Shape& row);

}  // namespace lockstep::ops
