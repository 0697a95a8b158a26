// Internal: batch normalization, divided into kernels so that shards can merge their statistics. A shard's statistics
// are (n, mean, M2), where M2 is the sum of squared distances from the mean. They are merged in the shards' tree (Chan,
// Golub, LeVeque 1979). Layer norm and RMS norm normalize each row separately.
#pragma once

#include <span>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// x, y, residual, dy, and dx are [N, C, H, W] of one dtype and any one layout. Per-channel arrays are [C] and f32 (f64
// if x is f64). n = samples per channel, N*H*W of all shards that share the statistics.
struct BatchNormStats {
  std::int64_t n = 0;
  View mean;
  View m2;
};

class NormKernels {
 public:
  virtual ~NormKernels() = default;

  // mean and M2 of one shard; stats.n is N*H*W. An empty shard gives mean 0 and M2 0.
  virtual void stats(KernelContext&, const View& x, const BatchNormStats& stats) = 0;

  // out = the statistics of all parts, merged in the tree of ReduceKernels::tree_sum. Parts with n = 0 are missing
  // leaves; if all are missing, mean and M2 are 0. out.n is the sum of the parts' n. Two parts a and b merge to
  //   n = a.n + b.n,  d = b.mean - a.mean,  mean = a.mean + d * (b.n / n),  M2 = a.M2 + b.M2 + d * d * a.n * (b.n / n)
  // in f64 from left to right, both rounded to their dtype at every node of the tree, so complete subtrees merged
  // elsewhere give the same bits as all parts merged at once. All back ends give the same bits.
  virtual void merge_stats(KernelContext&, std::span<const BatchNormStats> parts, const BatchNormStats& out) = 0;

  // y = gamma * (x - mean) / sqrt(M2 / n + eps) + beta, plus residual if there is one, then max(0, .) if relu. n = 1
  // with M2 = the running variance normalizes by running statistics. y may alias x or residual.
  virtual void forward(KernelContext&, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
                       const View& beta, const View& residual, bool relu, const View& y) = 0;

  // For one shard: dbeta = sum g, dgamma = sum g * xhat, over N, H, W, where xhat = (x - mean) / sqrt(M2/n + eps) and g
  // = dy. If `y`, the output of a fused ReLU, is given, g is 0 where y is not above 0.
  virtual void backward_stats(KernelContext&, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                              double eps, const View& dgamma, const View& dbeta) = 0;

  // dx = gamma / sqrt(M2/n + eps) * (g - sum_g / n - xhat * sum_g_xhat / n), and dresidual = g if present. The sums are
  // over all shards that share the statistics (dbeta and dgamma summed). dx may alias dy; if dresidual is present, only
  // dresidual may alias dy.
  virtual void backward_data(KernelContext&, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                             double eps, const View& gamma, const View& sum_g, const View& sum_g_xhat, const View& dx,
                             const View& dresidual) = 0;

  // running_mean += momentum * (mean - running_mean); running_var likewise with the unbiased variance M2 / (n - 1). n =
  // 0 leaves both unchanged. n = 1 has no unbiased variance and leaves running_var unchanged. batches (i64 scalar)
  // counts the commits.
  virtual void commit(KernelContext&, const BatchNormStats& stats, double momentum, const View& running_mean,
                      const View& running_var, const View& batches) = 0;

  // For each row of x [rows, k], plain: y = (x - mean) * rstd * weight + bias, where rstd = 1 / sqrt(var + eps) and var
  // is the mean of (x - mean)^2. `mean` and `rstd` [rows] are results. Without a `mean`, it counts as 0: RMS norm.
  // weight and bias [k] may be absent: ones and zeros. They, mean, and rstd are f32 (f64 if x is f64).
  virtual void rows_forward(KernelContext&, const View& x, const View& weight, const View& bias, double eps,
                            const View& mean, const View& rstd, const View& y) = 0;

  // dx = rstd * (g - avg(g) - xhat * avg(g * xhat)), where g = dy * weight, xhat = (x - mean) * rstd, and avg is the
  // mean over the row; without a `mean`, avg(g) is left out. dweight [k] = sum dy * xhat and dbias [k] = sum dy, over
  // the rows. Results that are not needed are absent.
  virtual void rows_backward(KernelContext&, const View& dy, const View& x, const View& mean, const View& rstd,
                             const View& weight, const View& dx, const View& dweight, const View& dbias) = 0;
};

}  // namespace lockstep
