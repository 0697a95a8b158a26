#include "bindings.h"

namespace lockstep::python {

void add_parallel(py::module_& m) { (void)m; }

}  // namespace lockstep::python
