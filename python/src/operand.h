// Arguments that are a tensor or a number, and PyTorch's rules for numbers: an int takes the tensor's type, a float
// makes integer tensors float32. A bool tensor with an int computes in int64.
#pragma once

#include <pybind11/pybind11.h>

#include "lockstep/autograd/functions.h"
#include "parameter.h"

namespace lockstep::python {

// Whether it is an array of NumPy, with any number of axes.
bool is_numpy_array(pybind11::handle source);
Tensor tensor_of_array(pybind11::handle source, bool copied);  // numpy.h
// Returns false if `source` is not a number. An int that does not fit is an OverflowError.
bool read_number(pybind11::handle source, Scalar& number);

struct Operand {
  Tensor tensor;  // undefined for a number
  Scalar number;
};

// Returns x in the type in which it is combined with this number.
Tensor beside_number(const Tensor& x, const Scalar& number);
// Returns a tensor without axes on the device of x: int64 for an int, bool for a bool; otherwise in x's type or
// float32.
Tensor as_tensor_beside(const Tensor& x, const Scalar& number);
// Returns bools as int64, and other tensors unchanged.
Tensor counted(const Tensor& x);

}  // namespace lockstep::python

namespace pybind11::detail {

template <>
struct type_caster<lockstep::Scalar> {
  PYBIND11_TYPE_CASTER(lockstep::Scalar, const_name("float"));
  bool load(handle source, bool) { return lockstep::python::read_number(source, value); }
  static handle cast(const lockstep::Scalar& number, return_value_policy, handle) {
    return number.is_whole() ? PyLong_FromLongLong(number.to<std::int64_t>()) : PyFloat_FromDouble(number.to<double>());
  }
};

template <>
struct type_caster<lockstep::python::Operand> {
  PYBIND11_TYPE_CASTER(lockstep::python::Operand, const_name("Tensor | float"));
  bool load(handle source, bool convert) {
    make_caster<lockstep::Tensor> tensor;
    if (tensor.load(source, convert)) {
      if (source.is_none()) return false;
      value.tensor = cast_op<lockstep::Tensor&&>(std::move(tensor));
      return true;
    }
    if (lockstep::python::read_number(source, value.number)) return true;
    if (!lockstep::python::is_numpy_array(source)) return false;
    value.tensor = lockstep::python::tensor_of_array(source, true);
    return true;
  }
};

}  // namespace pybind11::detail
