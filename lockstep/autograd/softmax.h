// Softmax along an axis other than the batch axis.
//
//   Tensor probabilities = softmax(logits, 1);
#pragma once

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);
Tensor softmin(const Tensor& x, int dim = -1);  // softmax(-x)

}  // namespace lockstep
