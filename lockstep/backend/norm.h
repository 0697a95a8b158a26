// Batch normalization, cut where shards have to be able to merge: statistics of a shard are (n, mean, M2), with
// M2 the sum of squared distances from the mean, merged in the shards' tree (Chan, Golub, LeVeque 1979).
#pragma once

#include <span>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace LOCKSTEP_API lockstep {

// x, y, residual, dy, dx are [N, C, H, W] of one dtype and one layout (any). Everything per channel is [C] and
// f32 (f64 where x is f64). n = samples per channel, N*H*W of all shards that share the statistics.
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

  // out = the statistics of all parts, merged in the tree of ReduceKernels::tree_sum. Parts with n = 0 are
  // missing leaves; mean 0 and M2 0 if all are. out.n is the sum of the parts' n. Two parts a and b merge to
  //   n = a.n + b.n,  d = b.mean - a.mean,  mean = a.mean + d * (b.n / n),  M2 = a.M2 + b.M2 + d * d * a.n * (b.n / n)
  // in f64 from left to right, both rounded to their dtype at every node of the tree: complete subtrees merged
  // elsewhere give the same bits as all parts merged at once. The same on all back ends.
  virtual void merge_stats(KernelContext&, std::span<const BatchNormStats> parts, const BatchNormStats& out) = 0;

  // y = gamma * (x - mean) / sqrt(M2 / n + eps) + beta, plus residual if there is one, then max(0, .) if relu.
  // n = 1 with M2 = a variance normalizes by running statistics. y may be x or residual.
  virtual void forward(KernelContext&, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
                       const View& beta, const View& residual, bool relu, const View& y) = 0;

  // Of one shard: dbeta = sum g, dgamma = sum g * xhat, over N, H, W, where xhat = (x - mean) / sqrt(M2/n + eps)
  // and g = dy, or dy where y > 0 and else 0 if a `y` is given (the output of a fused ReLU).
  virtual void backward_stats(KernelContext&, const View& dy, const View& x, const View& y,
                              const BatchNormStats& stats, double eps, const View& dgamma, const View& dbeta) = 0;

  // dx = gamma / sqrt(M2/n + eps) * (g - sum_g / n - xhat * sum_g_xhat / n), and dresidual = g if wanted. The sums
  // are those of all shards that share the statistics (dbeta and dgamma summed). dx may be dy, unless dresidual is
  // wanted: then dresidual may be dy.
  virtual void backward_data(KernelContext&, const View& dy, const View& x, const View& y,
                             const BatchNormStats& stats, double eps, const View& gamma, const View& sum_g,
                             const View& sum_g_xhat, const View& dx, const View& dresidual) = 0;

  // running_mean += momentum * (mean - running_mean); running_var likewise with the unbiased variance
  // M2 / (n - 1). n = 0 changes nothing; n = 1 has no unbiased variance and leaves running_var as it is.
  // batches (i64 scalar) counts the commits with n > 0.
  virtual void commit(KernelContext&, const BatchNormStats& stats, double momentum, const View& running_mean,
                      const View& running_var, const View& batches) = 0;
};

}  // namespace lockstep
