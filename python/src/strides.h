// Internal: the strides that PyTorch's views have. If they decide whether PyTorch's result is a view or a copy, the
// library's result is the same, although its own arrays are dense.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/tensor/shape.h"

namespace lockstep::python {

using Strides = std::vector<std::int64_t>;

// Returns the strides of a tensor in plain order.
Strides plain_strides(const Shape& shape);
bool is_plain(const Shape& shape, const Strides& strides);
// Whether several elements share one address.
bool repeats_elements(const Shape& shape, const Strides& strides);
// Returns the strides of a copy, which keeps the order of the elements in memory, without gaps.
Strides dense_strides(const Shape& shape, const Strides& strides);
// Returns the strides of a view with another shape; nothing if PyTorch would have to copy.
std::optional<Strides> reshaped_strides(const Shape& shape, const Strides& strides, const Shape& to);

}  // namespace lockstep::python
