#include "bindings.h"

namespace lockstep::python {

void add_optimizers(py::module_& m) { (void)m; }

}  // namespace lockstep::python
