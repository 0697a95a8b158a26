#include "bindings.h"

namespace lockstep::python {

void add_layers(py::module_& m) { (void)m; }

}  // namespace lockstep::python
