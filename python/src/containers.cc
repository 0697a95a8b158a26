// lockstep.nn.Sequential. The other containers are in lockstep/nn/containers.py.
#include "layers.h"

namespace lockstep::python {

void add_containers(py::module_& m) {
  ModuleClass<Sequential> sequential(m, "Sequential", "Runs modules one after the other.");
  def_constructor(sequential, [] { return std::make_unique<Sequential>(); });
}

}  // namespace lockstep::python
