// Internal: operations that take positions from an i64 array. Along all axes but `axis`, shapes broadcast as in NumPy.
// A position outside the axis fails the task: `index: 7 at place 3 is outside [0, 5)`.
#pragma once

#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// y[.., i, ..] = x[.., index[.., i, ..], ..]: NumPy's take_along_axis.
Array take_along_axis(const Array& x, const Array& index, int axis);
// Zeros of `extent` along the axis to which x[.., i, ..] is added at index[.., i, ..], in the order of i.
Array scatter_sum(const Array& x, const Array& index, int axis, std::int64_t extent);
// x with source[.., i, ..] at [.., index[.., i, ..], ..] along the axis; the last one of equal indices wins. The source
// and the index have one shape, which is x's except on the axis.
Array scatter(const Array& x, const Array& index, const Array& source, int axis);

}  // namespace lockstep::ops
