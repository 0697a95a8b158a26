#include "operand.h"

#include <cmath>

#include "bindings.h"

namespace lockstep::python {
namespace {

constexpr std::int64_t kExact = std::int64_t{1} << 53;

bool read_whole(PyObject* source, Number& number) {
  const long long whole = PyLong_AsLongLong(source);
  if (whole == -1 && PyErr_Occurred()) throw py::error_already_set();
  number = {
      .value = static_cast<double>(whole), .whole = whole, .is_whole = true, .is_bool = PyBool_Check(source) != 0};
  return true;
}

}  // namespace

bool read_number(py::handle handle, Number& number) {
  PyObject* const source = handle.ptr();
  if (PyFloat_Check(source)) {
    number = {.value = PyFloat_AS_DOUBLE(source), .whole = 0, .is_whole = false};
    return true;
  }
  if (PyLong_Check(source)) return read_whole(source, number);
  // NumPy's scalars. What has a length, such as an array or a tensor, is no number.
  const PyTypeObject* const type = Py_TYPE(source);
  if (type->tp_as_number == nullptr ||
      (type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_length != nullptr)) {
    return false;
  }
  const std::string_view name = type->tp_name;
  if (name == "numpy.bool_" || name == "numpy.bool") {
    const int truth = PyObject_IsTrue(source);
    number = {.value = double(truth), .whole = truth, .is_whole = true, .is_bool = true};
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
  number = {.value = value, .whole = 0, .is_whole = false};
  return true;
}

bool is_numpy_array(py::handle source) { return PyObject_HasAttrString(source.ptr(), "__array_interface__") == 1; }

Tensor counted(const Tensor& x) { return x.dtype() == DType::u8 ? x.to(DType::i64) : x; }

Tensor beside_number(const Tensor& x, const Number& number) {
  if (is_floating(x.dtype())) return x;
  return number.is_whole ? counted(x) : x.to(DType::f32);
}

Tensor as_tensor_beside(const Tensor& x, const Number& number) {
  const Tensor made = number.is_whole
                          ? Tensor::from({number.whole}, {})
                          : Tensor::from({number.value}, {}).to(is_floating(x.dtype()) ? x.dtype() : DType::f32);
  return x.device().is_host() ? made : made.to(x.device());
}

}  // namespace lockstep::python
