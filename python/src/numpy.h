// Arrays of NumPy and of other libraries as tensors, and tensors as arrays, without a copy where that is possible.
#pragma once

#include "bindings.h"

namespace lockstep::python {

// An object with a buffer, with __dlpack__(), or with __array__(), other than a tensor or bytes.
bool is_array(py::handle source);
// The array's elements in host memory. Without `copied`, the tensor shares the array's memory, which it keeps alive, if
// the library has the type and the elements are in plain order; otherwise it has a copy of them that must not be
// written. int32 and its like become int64, with the values kept.
Tensor tensor_of_array(py::handle source, bool copied);

}  // namespace lockstep::python
