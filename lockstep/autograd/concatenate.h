// Concatenation.
//
//   Tensor both = cat({x, y}, 1);
#pragma once

#include <initializer_list>
#include <span>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Joins tensors along an axis. On the batch axis, the batches must have the same samples.
Tensor cat(std::span<const Tensor> tensors, int dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int dim = 0);
// Joins tensors along a new axis.
Tensor stack(std::span<const Tensor> tensors, int dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int dim = 0);
// cat() along axis 0 for tensors on any devices. The result is on `device` or, without it, on the device of the first
// part that is not in host memory, which must be able to read host parts. Gradients return to the parts' devices.
Tensor concatenate(std::span<const Tensor> parts, Device device);
Tensor concatenate(std::span<const Tensor> parts);

}  // namespace lockstep
