// Functions that create tensors.
#include "bindings.h"

namespace lockstep::python {

void add_creation(py::module_& m) {
  m.def(
      "randn",
      [](const py::args& size, std::optional<DType> dtype) {
        const Shape shape = (size.size() == 1 ? py::object(size[0]) : py::object(size)).cast<Shape>();
        const WithoutLock describing;
        return randn(shape, {.dtype = dtype});
      },
      "dtype"_a = py::none());
}

}  // namespace lockstep::python
