// Values of Python as tensors.
#pragma once

#include "bindings.h"

namespace lockstep::python {

// Numbers, nested lists or tuples of numbers or tensors, or an array, in host memory. `copied`: an array is copied, a
// tensor too; otherwise memory is shared where that is possible.
Tensor tensor_of_data(py::handle data, std::optional<DType> dtype, bool copied);

// The key of the next draw from a lockstep.Generator. None: undefined, for the stream of manual_seed().
std::optional<RandomKey> next_key_of(const py::object& generator);

}  // namespace lockstep::python
