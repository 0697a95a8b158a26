// Shapes, and types of elements. Negative axes count from the end.
//
//   Tensor rows = flatten(images, 1);  // [N, C, H, W] -> [N, C H W]
#pragma once

#include <initializer_list>
#include <span>

#include "lockstep/autograd/dims.h"
#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

Tensor reshape(const Tensor& x, Shape shape);
// Merges axes start_dim to end_dim into one.
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1);
// Splits axis `dim` into several. One extent may be -1, which is inferred.
Tensor unflatten(const Tensor& x, int dim, const Shape& sizes);
// Removes axes of extent 1: the given ones, or all if none is given. The batch axis stays.
Tensor squeeze(const Tensor& x, const Dims& dims = {});
// Inserts an axis of extent 1 before axis `dim`, or last.
Tensor unsqueeze(const Tensor& x, int dim);
// Axis i of the result is axis dims[i] of x.
Tensor permute(const Tensor& x, std::span<const int> dims);
Tensor permute(const Tensor& x, std::initializer_list<int> dims);
// Swaps two axes.
Tensor transpose(const Tensor& x, int dim0 = 0, int dim1 = 1);
// Broadcasts axes of extent 1 to `shape` and adds leading axes. -1 keeps an extent.
Tensor expand(const Tensor& x, Shape shape);
Tensor cast(const Tensor& x, DType dtype);

}  // namespace lockstep
