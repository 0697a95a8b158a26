// Converts arrays of NumPy and of other libraries to tensors, and tensors to arrays, without a copy if possible.
#pragma once

#include "bindings.h"

namespace lockstep::python {

// Whether `source` has a buffer, __dlpack__(), or __array__(), and is neither a tensor nor bytes.
bool is_array(py::handle source);
// Returns the array's elements in host memory. Without `copied`, the tensor shares the array's memory and keeps it
// alive if the library has the type and the elements are in plain order; otherwise it has a copy that must not be
// written. Other integer types such as int32 become int64 with the same values.
Tensor tensor_of_array(py::handle source, bool copied);

}  // namespace lockstep::python
