// Repetitions and other orders of elements. Negative axes count from the end.
//
//   Tensor mirrored = flip(images, -1), pairs = repeat_interleave(rows, 2, 0);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/autograd/dims.h"
#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// x as often as `sizes` says along each axis, one copy after the other. More numbers than axes add axes in front.
Tensor repeat(const Tensor& x, const Shape& sizes);
// As repeat(); missing leading numbers are 1.
Tensor tile(const Tensor& x, const Shape& dims);
// Each element `repeats` times in a row along the axis; without `dim`, of all elements in one row.
Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::optional<int> dim = {});
// The reverse order along these axes, of which none is the batch axis.
Tensor flip(const Tensor& x, const Dims& dims);
// Shifts elements towards the end of the axis, which is not the batch axis; those that leave it enter at its start.
// Without `dim`, along all elements in one row. With several axes, one shift for each.
Tensor roll(const Tensor& x, std::int64_t shift, std::optional<int> dim = {});
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const Dims& dims);
// Axis source[i] becomes axis destination[i]; the others keep their order.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);

}  // namespace lockstep
