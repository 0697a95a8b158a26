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

// sizes[i] copies of x along axis i, one after the other. If there are more sizes than axes, x gets leading axes.
Tensor repeat(const Tensor& x, const Shape& sizes);
// Like repeat(), where missing leading sizes are 1.
Tensor tile(const Tensor& x, const Shape& dims);
// Each element `repeats` times in a row along the axis; without `dim`, x is flattened first.
Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::optional<int> dim = {});
// x in reverse order along these axes, none of which may be the batch axis.
Tensor flip(const Tensor& x, const Dims& dims);
// Shifts elements toward the end of the axis, which is not the batch axis; elements that leave the axis enter at its
// start. Without `dim`, shifts all elements in plain order. With several axes, there is one shift for each.
Tensor roll(const Tensor& x, std::int64_t shift, std::optional<int> dim = {});
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const Dims& dims);
// Axis source[i] becomes axis destination[i]; other axes keep their order.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);

}  // namespace lockstep
