// lockstep._core, which the files of python/lockstep/ give PyTorch's names.
#include "held.h"
#include "signatures.h"
#include "training.h"

namespace lockstep::python {
void add_autograd(py::module_& package);
}

PYBIND11_MODULE(_core, m) {
  using namespace lockstep::python;  // NOLINT(google-build-using-namespace)
  m.doc() = "The engine of the package lockstep.";
  m.attr("__version__") = LOCKSTEP_VERSION;
  add_interpreter_lock(m);
  add_held(m);
  add_errors(m);
  add_types(m);
  add_devices(m);
  TensorClass tensor = add_tensor(m);
  add_creation(m);
  add_grad_mode(m);
  add_numpy(m, tensor);
  add_operators(tensor);
  add_indexing(tensor);
  add_functions(m, tensor);
  // The names that `import lockstep` has; classes of other modules, such as lockstep.nn, are only in those modules.
  py::list names;
  for (const auto& [name, value] : m.attr("__dict__").cast<py::dict>()) {
    if (!name.cast<std::string_view>().starts_with('_')) names.append(name);
  }
  m.attr("__all__") = names;
  add_functional(m);
  add_module(m);
  add_layers(m);
  add_optimizers(m);
  add_amp(m);
  add_autograd(m);
  add_parallel(m);
  add_data(m);
  add_distributed(m);
  add_save(m);
  complete_modules(m);
  add_training(m);
  add_predictor(m);
  add_task(m);
  add_watching(m);
  describe_functions(m);
  untrack_what_is_destroyed();
}
