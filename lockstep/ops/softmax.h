// Softmax and the losses. Losses are means over the samples of one shard: scalars of shape [1].
#pragma once

#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

// Over the last axis.
Tensor softmax(const Tensor& x);
Tensor softmax_backward(const Tensor& y, const Tensor& dy);
Tensor log_softmax(const Tensor& x);
Tensor log_softmax_backward(const Tensor& y, const Tensor& dy);

// logits [n, classes], labels i64 [n]; see backend/softmax.h.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing);
Tensor cross_entropy_backward(const Tensor& logits, const Tensor& labels, double label_smoothing,
                              const Tensor& dloss);

Tensor mse(const Tensor& x, const Tensor& target);
Tensor mse_backward(const Tensor& x, const Tensor& target, const Tensor& dloss);

}  // namespace lockstep::ops
