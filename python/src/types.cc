// Element types and shapes: lockstep.float32, lockstep.Size.
#include <array>
#include <utility>

#include "bindings.h"

namespace lockstep::python {
namespace {

constexpr std::array<std::pair<DType, const char*>, 7> kTypes{{{DType::f32, "float32"},
                                                               {DType::f64, "float64"},
                                                               {DType::bf16, "bfloat16"},
                                                               {DType::f16, "float16"},
                                                               {DType::i64, "int64"},
                                                               {DType::u8, "uint8"},
                                                               {DType::boolean, "bool"}}};

// Never destroyed, because a static object would be destroyed after the interpreter.
py::handle size_class;

}  // namespace

bool read_ints(py::handle source, std::vector<std::int64_t>& ints) {
  const auto add = [&](py::handle item) {
    if (!PyIndex_Check(item.ptr()) || PyBool_Check(item.ptr())) return false;
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(item.ptr()));
    if (!index) {
      PyErr_Clear();
      return false;
    }
    const long long value = PyLong_AsLongLong(index.ptr());
    if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
    ints.push_back(value);
    return true;
  };
  if (!PyTuple_Check(source.ptr()) && !PyList_Check(source.ptr())) return add(source);
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(source))
    if (!add(item)) return false;
  return true;
}

py::object size_object(const Shape& shape) {
  py::tuple sizes(static_cast<std::size_t>(shape.dim()));
  for (int i = 0; i < shape.dim(); ++i) sizes[static_cast<std::size_t>(i)] = shape[i];
  return size_class(sizes);
}

void add_types(py::module_& m) {
  py::class_<DType> dtype(m, "dtype", "The type of a tensor's elements.");
  dtype.def("__repr__", [](DType type) {
    for (const auto& [known, text] : kTypes)
      if (known == type) return fmt::format("torch.{}", text);
    return std::string("?");
  });
  dtype.def(
      "__eq__", [](DType a, DType b) { return a == b; }, py::is_operator());
  dtype.def("__hash__", [](DType type) { return static_cast<int>(type); });
  dtype.def_property_readonly("is_floating_point", [](DType type) { return is_floating(type); });
  dtype.def_property_readonly("itemsize", [](DType type) { return item_size(type); });
  // The name `bool` would hide Python's bool where the module's names are imported.
  for (const auto& [type, text] : kTypes) m.attr(type == DType::boolean ? "_bool" : text) = py::cast(type);

  size_class = py::object(py::module_::import("lockstep.size").attr("Size")).release();
}

}  // namespace lockstep::python
