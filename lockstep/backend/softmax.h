// Internal: softmax and the losses.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// How cross entropy reads labels.
struct LabelRules {
  double smoothing = 0;                      // this much of the target is spread over all classes
  std::optional<std::int64_t> ignored = {};  // samples with this label add nothing and have no gradient
  std::int64_t first_sample = 0;             // the shard's first sample in the batch, for errors
  bool ignores(std::int64_t label) const { return ignored == label; }
};

// Losses are means over the samples of one shard. dloss is a scalar [1] of loss's dtype: the gradient of the
// job's loss with respect to this shard's (its share of the samples).
class SoftmaxKernels {
 public:
  virtual ~SoftmaxKernels() = default;

  // Over the last axis, plain layout, one floating dtype.
  virtual void softmax(KernelContext&, const View& x, const View& y) = 0;
  virtual void softmax_backward(KernelContext&, const View& y, const View& dy, const View& dx) = 0;
  virtual void log_softmax(KernelContext&, const View& x, const View& y) = 0;
  virtual void log_softmax_backward(KernelContext&, const View& y, const View& dy, const View& dx) = 0;

  // sums [3] = the sum over samples that count of -sum_k q[n, k] log softmax(logits)[n, k], with
  // q = (1 - smoothing) * onehot(label) + smoothing / classes, then the number of ignored samples, and that of counted
  // ones, all three divided by n. So the samples' share of the batch weights all three. logits [n, classes] f32, bf16,
  // f16 or f64; labels i64 [n]; sums f32 (f64 with f64). Another label outside [0, classes) is an error that names it.
  // n = 0 gives zeros.
  virtual void cross_entropy(KernelContext&, const View& logits, const View& labels, const LabelRules& rules,
                             const View& sums) = 0;
  // loss [1] = the mean over the samples that count, sums[0] * (1 + sums[1] / sums[2]), from the sums of all shards. If
  // none is ignored, it is sums[0] itself; if none counts, it is NaN.
  virtual void cross_entropy_mean(KernelContext&, const View& sums, const View& loss) = 0;
  // dlogits of the mean. `sums` are those of all shards.
  virtual void cross_entropy_backward(KernelContext&, const View& logits, const View& labels, const LabelRules& rules,
                                      const View& sums, const View& dloss, const View& dlogits) = 0;

  // loss [1] = mean over all elements of (x - target)^2; dx = 2 (x - target) / numel * dloss.
  virtual void mse(KernelContext&, const View& x, const View& target, const View& loss) = 0;
  virtual void mse_backward(KernelContext&, const View& x, const View& target, const View& dloss, const View& dx) = 0;
};

}  // namespace lockstep
