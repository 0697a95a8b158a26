// lockstep.Tensor: its properties, its gradient, and how it prints. functions.cc adds the functions.
#include "bindings.h"

namespace lockstep::python {

TensorClass add_tensor(py::module_& m) {
  TensorClass tensor(m, "Tensor", "One logical array, wherever its parts lie.");
  tensor.def_property_readonly("shape", &Tensor::shape);
  tensor.def_property_readonly("dtype", &Tensor::dtype);
  tensor.def_property_readonly("device", &Tensor::device);
  tensor.def("size", [](const Tensor& x) { return x.shape(); });
  tensor.def("size", &Tensor::size, "dim"_a);
  tensor.def("dim", &Tensor::dim);
  tensor.def("numel", &Tensor::numel);
  tensor.def(
      "backward", [](const Tensor& x) { x.backward(); }, released());
  tensor.def("__repr__", &Tensor::str, released());
  tensor.def(
      "item",
      [](const Tensor& x) -> py::object {
        if (is_floating(x.dtype())) {
          double value = 0;
          {
            const WithoutLock waiting;
            value = x.item();
          }
          return py::float_(value);
        }
        std::int64_t value = 0;
        {
          const WithoutLock waiting;
          value = x.dtype() == DType::u8 ? x.item<std::uint8_t>() : x.item<std::int64_t>();
        }
        return py::int_(value);
      },
      "The only element as a number. Waits.");
  return tensor;
}

}  // namespace lockstep::python
