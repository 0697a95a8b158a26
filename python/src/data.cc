#include "bindings.h"

namespace lockstep::python {

void add_data(py::module_& m) { (void)m; }

}  // namespace lockstep::python
