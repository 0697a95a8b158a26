// Internal: batch normalization, divided into kernels so that shards can merge their statistics. A shard's statistics
// are (n, mean, M2), where M2 is the sum of squared distances from the mean. They are merged in the shards' tree (Chan,
// Golub, LeVeque 1979). Layer norm and RMS norm normalize each row separately.
#pragma once

#include <span>

#include "lockstep/backend/kernels.h"

namespace lockstep {

// x, y, residual, dy, and dx are [N, C, H, W] of one dtype and any one layout. Per-channel arrays are [C] and f32 (f64
// if x is f64). n = samples per channel, N*H*W of all shards that share the statistics.
struct BatchNormStats {
  std::int64_t n = 0;
  View mean;
  View m2;
  static void views(auto& s, const auto& each) { each(s.mean), each(s.m2); }
};

namespace kernels {

// mean and M2 of one shard; stats.n is N*H*W. An empty shard gives mean 0 and M2 0.
struct NormStats {
  View x;
  BatchNormStats stats;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), BatchNormStats::views(c.stats, out); }
};

// out = the statistics of all parts, merged in the tree of TreeSum. Parts with n = 0 are missing leaves; if all are
// missing, mean and M2 are 0. out.n is the sum of the parts' n. Two parts a and b merge to
//   n = a.n + b.n,  d = b.mean - a.mean,  mean = a.mean + d * (b.n / n),  M2 = a.M2 + b.M2 + d * d * a.n * (b.n / n)
// in f64 from left to right, both rounded to their dtype at every node of the tree, so complete subtrees merged
// elsewhere give the same bits as all parts merged at once. All back ends give the same bits.
struct MergeNormStats {
  std::span<const BatchNormStats> parts;
  BatchNormStats merged;
  static void views(auto& c, const auto& in, const auto& out) { in(c.parts), BatchNormStats::views(c.merged, out); }
};

// y = gamma * (x - mean) / sqrt(M2 / n + eps) + beta, plus residual if there is one, then max(0, .) if relu. n = 1
// with M2 = the running variance normalizes by running statistics. y may be x or residual.
struct Norm {
  View x;
  BatchNormStats stats;
  double eps;
  View gamma, beta, residual;
  bool relu;
  View y;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.x), BatchNormStats::views(c.stats, in), in(c.gamma), in(c.beta), in(c.residual), out(c.y);
  }
};

// For one shard: dbeta = sum g, dgamma = sum g * xhat, over N, H, W, where xhat = (x - mean) / sqrt(M2/n + eps) and g
// = dy. If `y`, the output of a fused ReLU, is given, g is 0 where y is not above 0.
struct NormBackwardStats {
  View dy, x, y;
  BatchNormStats stats;
  double eps;
  View dgamma, dbeta;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.dy), in(c.x), in(c.y), BatchNormStats::views(c.stats, in), out(c.dgamma), out(c.dbeta);
  }
};

// dx = gamma / sqrt(M2/n + eps) * (g - sum_g / n - xhat * sum_g_xhat / n), and dresidual = g if present. The sums are
// over all shards that share the statistics (dbeta and dgamma summed). dx may be dy; if dresidual is present, only
// dresidual may be dy.
struct NormBackwardData {
  View dy, x, y;
  BatchNormStats stats;
  double eps;
  View gamma, sum_g, sum_g_xhat, dx, dresidual;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.dy), in(c.x), in(c.y), BatchNormStats::views(c.stats, in), in(c.gamma), in(c.sum_g), in(c.sum_g_xhat);
    out(c.dx), out(c.dresidual);
  }
};

// running_mean += momentum * (mean - running_mean); running_var likewise with the unbiased variance M2 / (n - 1). n =
// 0 leaves both unchanged. n = 1 has no unbiased variance and leaves running_var unchanged. batches (i64 scalar)
// counts the commits. A negative momentum stands for 1 / batches: the average of all commits.
struct CommitNormStats {
  BatchNormStats stats;
  double momentum;
  View running_mean, running_var, batches;
  static void views(auto& c, const auto& in, const auto& out) {
    BatchNormStats::views(c.stats, in), out(c.running_mean), out(c.running_var), out(c.batches);
  }
};

// For each row of x [rows, k], plain: y = (x - mean) * rstd * weight + bias, where rstd = 1 / sqrt(var + eps) and var
// is the mean of (x - mean)^2. `mean` and `rstd` [rows] are results. An absent `mean` counts as 0: RMS norm. An absent
// weight [k] counts as ones, an absent bias [k] as zeros. All four are f32 (f64 if x is f64).
struct NormRows {
  View x, weight, bias;
  double eps;
  View mean, rstd, y;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.x), in(c.weight), in(c.bias), out(c.mean), out(c.rstd), out(c.y);
  }
};

// dx = rstd * (g - avg(g) - xhat * avg(g * xhat)), where g = dy * weight, xhat = (x - mean) * rstd, and avg is the
// mean over the row; without a `mean`, avg(g) is left out. dweight [k] = sum dy * xhat and dbias [k] = sum dy, over
// the rows. Results that are not needed are absent.
struct NormRowsBackward {
  View dy, x, mean, rstd, weight, dx, dweight, dbias;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.dy), in(c.x), in(c.mean), in(c.rstd), in(c.weight), out(c.dx), out(c.dweight), out(c.dbias);
  }
};

}  // namespace kernels

using NormKernels =
    Kernels<kernels::NormStats, kernels::MergeNormStats, kernels::Norm, kernels::NormBackwardStats,
            kernels::NormBackwardData, kernels::CommitNormStats, kernels::NormRows, kernels::NormRowsBackward>;

}  // namespace lockstep
