// Functions from which lockstep/grad_mode.py makes the context managers no_grad, enable_grad, and set_grad_enabled.
#include "lockstep/autograd/grad_mode.h"
#include "bindings.h"

namespace lockstep::python {

void add_grad_mode(py::module_& m) {
  m.def(
      "is_grad_enabled", [] { return grad_enabled(); }, "Whether this thread records gradients.");
  m.def(
      "_set_grad_enabled", [](bool mode) { set_grad_enabled(mode); }, "mode"_a);
}

}  // namespace lockstep::python
