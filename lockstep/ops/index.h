// Internal: operations that take positions from an i64 array. Along all axes but `axis`, shapes broadcast as in NumPy.
// A position outside the axis fails the task: `index: 7 at place 3 is outside [0, 5)`.
#pragma once

#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// y[.., i, ..] = x[.., index[.., i, ..], ..]: NumPy's take_along_axis.
Array take_along_axis(const Array& x, const Array& index, int axis);
// Zeros of `extent` along the axis to which x[.., i, ..] is added at index[.., i, ..], in the order of i.
Array scatter_sum(const Array& x, const Array& index, int axis, std::int64_t extent);

}  // namespace lockstep::ops
