// Functions and methods of tensors, in the order of lockstep/autograd/functions.h.
#include "functions.h"

namespace lockstep::python {

void add_functions(py::module_& m, TensorClass& tensor) {
  const FunctionsOf f{m, tensor};
  f.both(
      "exp", [](const Tensor& x) { return exp(x); }, "input"_a);
  f.both(
      "softmax", [](const Tensor& x, int dim) { return softmax(x, dim); }, "input"_a, "dim"_a = -1);
  f.both(
      "sum", [](const Tensor& x, const Dims& dim, bool keepdim) { return sum(x, dim, keepdim); }, "input"_a,
      "dim"_a = py::none(), "keepdim"_a = false);
  const auto add = [](const Tensor& a, const Tensor& b) { return a + b; };
  tensor.def("__add__", add, py::is_operator(), released());
  tensor.def(
      "__add__", [](const Tensor& a, double b) { return a + b; }, py::is_operator(), released());
}

}  // namespace lockstep::python
