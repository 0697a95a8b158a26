// Internal: the strides that PyTorch's views have. Where they decide whether PyTorch's result is a view or a copy, the
// library's is the same, although its own arrays are dense.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/tensor/shape.h"

namespace lockstep::python {

using Strides = std::vector<std::int64_t>;

// Those of a tensor in plain order.
Strides plain_strides(const Shape& shape);
bool is_plain(const Shape& shape, const Strides& strides);
// Whether several elements lie at one place.
bool repeats_elements(const Shape& shape, const Strides& strides);
// Those of a copy: its elements have the order of the original's in memory, without gaps.
Strides dense_strides(const Shape& shape, const Strides& strides);
// Those of the view with another shape; none if PyTorch would have to copy.
std::optional<Strides> reshaped_strides(const Shape& shape, const Strides& strides, const Shape& to);

}  // namespace lockstep::python
