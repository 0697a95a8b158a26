// Softmax and the losses.
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

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

  // loss [1] = mean over n of -sum_k q[n, k] log softmax(logits)[n, k], with q = (1 - smoothing) * onehot(label)
  // + smoothing / classes. logits [n, classes] f32, bf16, f16 or f64; labels i64 [n]; loss f32 (f64 with f64). A label
  // outside [0, classes) is an error that names it. n = 0 gives 0.
  virtual void cross_entropy(KernelContext&, const View& logits, const View& labels, double smoothing,
                             const View& loss) = 0;
  virtual void cross_entropy_backward(KernelContext&, const View& logits, const View& labels, double smoothing,
                                      const View& dloss, const View& dlogits) = 0;

  // loss [1] = mean over all elements of (x - target)^2; dx = 2 (x - target) / numel * dloss.
  virtual void mse(KernelContext&, const View& x, const View& target, const View& loss) = 0;
  virtual void mse_backward(KernelContext&, const View& x, const View& target, const View& dloss, const View& dx) = 0;
};

}  // namespace lockstep
