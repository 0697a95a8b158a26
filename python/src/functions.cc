// Functions and methods of tensors.
#include "functions.h"

namespace lockstep::python {

void add_functions(py::module_& m, TensorClass& tensor) {
  const FunctionsOf f{m, tensor};
  add_elementwise(f);
  add_reductions(f);
  add_shapes(f);
  add_indexed(f);
  add_network(f);
}

}  // namespace lockstep::python
