// Slices. Negative positions count from the end. Slicing the batch axis is an error.
//
//   Tensor first = select(x, 1, 0), odd = slice(x, 1, 1, {}, 2);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Elements [start, start + length) of the axis. The result shares x's memory if they are contiguous.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
// Element `index` of the axis; removes the axis.
Tensor select(const Tensor& x, int dim, std::int64_t index);
// x[start:end:step] as in Python.
Tensor slice(const Tensor& x, int dim, std::optional<std::int64_t> start = {}, std::optional<std::int64_t> end = {},
             std::int64_t step = 1);
// Splits the axis into parts of the given sizes, which must add up to its extent, or into parts of one size (the last
// may be smaller).
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, int dim = 0);
// Splits the axis into at most `chunks` parts of equal size (the last may be smaller). On the batch axis it reverses
// cat().
std::vector<Tensor> chunk(const Tensor& x, int chunks, int dim = 0);
// select(x, dim, 0), select(x, dim, 1), ...; their gradients are joined in one operation.
std::vector<Tensor> unbind(const Tensor& x, int dim = 0);

}  // namespace lockstep
