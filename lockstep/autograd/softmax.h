// Softmax along an axis other than the batch axis.
//
//   Tensor probabilities = softmax(logits, 1);
#pragma once

#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// `dtype`: x is converted to it first.
Tensor softmax(const Tensor& x, int dim = -1, std::optional<DType> dtype = {});
Tensor log_softmax(const Tensor& x, int dim = -1, std::optional<DType> dtype = {});
Tensor softmin(const Tensor& x, int dim = -1);  // softmax(-x)

}  // namespace lockstep
