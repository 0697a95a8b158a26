// The library's errors as exceptions: lockstep.Error and what derives from it.
#include "bindings.h"

namespace lockstep::python {

void add_errors(py::module_& m) {
  const auto error = py::register_exception<Error>(m, "Error", PyExc_RuntimeError);
  const auto task_error = py::register_exception<TaskError>(m, "TaskError", error);
  py::register_exception<CancelledError>(m, "CancelledError", task_error);
  py::register_exception<CommError>(m, "RankLost", error);
}

}  // namespace lockstep::python
