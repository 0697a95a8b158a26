// Recurrent layers, attention, transformers: layers with several inputs or outputs.
#include "layers.h"

namespace lockstep::python {

void add_recurrent_layers(py::module_& m) { (void)m; }

}  // namespace lockstep::python
