// lockstep.nn.Module and Parameter.
#include "bindings.h"

namespace lockstep::python {

void add_module(py::module_& m) {
  py::class_<Module, std::shared_ptr<Module>>(m, "Module");
  py::class_<Parameter> parameter(m, "Parameter");
  parameter.def_property_readonly("shape", &Parameter::shape);
}

}  // namespace lockstep::python
