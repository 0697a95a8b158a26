// Internal: softmax and the losses.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/backend/kernels.h"

namespace lockstep {

// How cross entropy reads labels.
struct LabelRules {
  double smoothing = 0;                      // this much of the target is spread over all classes
  std::optional<std::int64_t> ignored = {};  // samples with this label add nothing and have no gradient
  std::int64_t first_sample = 0;             // index in the batch of the shard's first sample, for errors
  bool ignores(std::int64_t label) const { return ignored == label; }
};

namespace kernels {

// Softmax and log softmax run over the last axis, in plain layout and one floating dtype.
struct Softmax {
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};
struct SoftmaxBackward {
  View y, dy, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.y), in(c.dy), out(c.dx); }
};
struct LogSoftmax {
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};
struct LogSoftmaxBackward {
  View y, dy, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.y), in(c.dy), out(c.dx); }
};

// Each loss is the mean over the samples of one shard. dloss is a scalar [1] of the loss's dtype: the gradient of the
// job's loss with respect to the shard's loss, which is the shard's share of the samples.

// sums [3] = the sum of -sum_k q[n, k] log softmax(logits)[n, k] over counted samples, with q = (1 - smoothing) *
// onehot(label) + smoothing / classes; the number of ignored samples; and that of counted ones. All three are divided
// by n, so that a shard's share of the batch weights them. logits [n, classes] f32, bf16, f16 or f64; labels i64 [n];
// sums f32 (f64 with f64). Any other label outside [0, classes) is an error that names it. n = 0 gives zeros.
struct CrossEntropy {
  View logits, labels;
  LabelRules rules;
  View sums;
  static void views(auto& c, const auto& in, const auto& out) { in(c.logits), in(c.labels), out(c.sums); }
};
// loss [1] = the mean over the counted samples, sums[0] * (1 + sums[1] / sums[2]), from the sums of all shards. If no
// sample is ignored, the loss is sums[0] itself; if all are, it is NaN.
struct CrossEntropyMean {
  View sums, loss;
  static void views(auto& c, const auto& in, const auto& out) { in(c.sums), out(c.loss); }
};
// dlogits = the gradient of the mean. `sums` are the sums of all shards.
struct CrossEntropyBackward {
  View logits, labels;
  LabelRules rules;
  View sums, dloss, dlogits;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.logits), in(c.labels), in(c.sums), in(c.dloss), out(c.dlogits);
  }
};

// loss [1] = mean over all elements of (x - target)^2; dx = 2 (x - target) / numel * dloss.
struct Mse {
  View x, target, loss;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), in(c.target), out(c.loss); }
};
struct MseBackward {
  View x, target, dloss, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), in(c.target), in(c.dloss), out(c.dx); }
};

}  // namespace kernels

using SoftmaxKernels = Kernels<kernels::Softmax, kernels::SoftmaxBackward, kernels::LogSoftmax,
                               kernels::LogSoftmaxBackward, kernels::CrossEntropy, kernels::CrossEntropyMean,
                               kernels::CrossEntropyBackward, kernels::Mse, kernels::MseBackward>;

}  // namespace lockstep
