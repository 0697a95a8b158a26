#include "operand.h"

#include <cmath>

#include "bindings.h"

namespace lockstep::python {
namespace {

bool read_whole(PyObject* source, Scalar& number) {
  const long long whole = PyLong_AsLongLong(source);
  if (whole == -1 && PyErr_Occurred()) throw py::error_already_set();
  number = PyBool_Check(source) ? Scalar(whole != 0) : Scalar(whole);
  return true;
}

}  // namespace

bool read_number(py::handle handle, Scalar& number) {
  PyObject* const source = handle.ptr();
  if (PyFloat_Check(source)) {
    number = PyFloat_AS_DOUBLE(source);
    return true;
  }
  if (PyLong_Check(source)) return read_whole(source, number);
  // Accepts NumPy's scalars. An object with a length, such as an array or a tensor, is not a number.
  const PyTypeObject* const type = Py_TYPE(source);
  if (type->tp_as_number == nullptr ||
      (type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_length != nullptr)) {
    return false;
  }
  const std::string_view name = type->tp_name;
  if (name == "numpy.bool_" || name == "numpy.bool") {
    const int truth = PyObject_IsTrue(source);
    number = truth != 0;
    return truth >= 0;
  }
  if (type->tp_as_number->nb_index != nullptr) {
    const auto whole = py::reinterpret_steal<py::object>(PyNumber_Index(source));
    if (whole) return read_whole(whole.ptr(), number);
    PyErr_Clear();
    return false;
  }
  if (type->tp_as_number->nb_float == nullptr || name == "complex") return false;
  const double value = PyFloat_AsDouble(source);
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  number = value;
  return true;
}

bool is_numpy_array(py::handle source) { return PyObject_HasAttrString(source.ptr(), "__array_interface__") == 1; }

Tensor counted(const Tensor& x) { return x.dtype() == DType::boolean ? x.to(DType::i64) : x; }

Tensor beside_number(const Tensor& x, const Scalar& number) {
  if (is_floating(x.dtype())) return x;
  if (!number.is_whole()) return x.to(DType::f32);
  return number.is_bool() ? x : counted(x);
}

Tensor as_tensor_beside(const Tensor& x, const Scalar& number) {
  const Tensor made = number.is_bool() ? Tensor::from({number.to<bool>()}, {})
                      : number.is_whole()
                          ? Tensor::from({number.to<std::int64_t>()}, {})
                          : Tensor::from({number.to<double>()}, {}).to(is_floating(x.dtype()) ? x.dtype() : DType::f32);
  return x.device().is_host() ? made : made.to(x.device());
}

}  // namespace lockstep::python
