// Softmax and the losses. Losses are means over the samples of one shard: scalars of shape [1].
#pragma once

#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Over the last axis.
Array softmax(const Array& x);
Array softmax_backward(const Array& y, const Array& dy);
Array log_softmax(const Array& x);
Array log_softmax_backward(const Array& y, const Array& dy);

// logits [n, classes], labels i64 [n]; see backend/softmax.h.
Array cross_entropy(const Array& logits, const Array& labels, double label_smoothing);
Array cross_entropy_backward(const Array& logits, const Array& labels, double label_smoothing, const Array& dloss);

Array mse(const Array& x, const Array& target);
Array mse_backward(const Array& x, const Array& target, const Array& dloss);

}  // namespace lockstep::ops
