// Converts values of Python to tensors.
#pragma once

#include "bindings.h"

namespace lockstep::python {

// Makes a tensor in host memory from numbers, nested lists or tuples of numbers or tensors, or an array. `copied`: an
// array or a tensor is copied; otherwise memory is shared if possible.
Tensor tensor_of_data(py::handle data, std::optional<DType> dtype, bool copied);

// Returns the key of the next draw from a lockstep.Generator. None: nothing, which means the stream of manual_seed().
std::optional<RandomKey> next_key_of(const py::object& generator);

}  // namespace lockstep::python
