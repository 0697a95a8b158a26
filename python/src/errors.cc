// Converts the library's errors to exceptions: lockstep.Error and the classes derived from it.
#include <utility>

#include "bindings.h"
#include "lockstep/nn/layer_error.h"

namespace lockstep::python {
namespace {

// Words in messages that have another name in Python, or no counterpart.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"set_gradient(), map_gradient(), or register_hook() of the parameter, or map_gradients() of the optimizer",
     "p.grad = t, p.register_hook(f), or nn.utils.clip_grad_norm_()"},
    {"loader.on(net) or split_and_load(), or turn gradients off (NoGradGuard)",
     "loader.on(net), wrap the model by nn.DataParallel(net), or turn gradients off (torch.no_grad())"},
    {", or a backward() with scaler.scales() for each optimizer", ""},
    {"the key of get(index, key) as {.key = key}", "DataLoader(num_workers=0)"},
    {"NoGradGuard", "torch.no_grad()"},
    {"TrainerOptions::split.", "the Trainer's "},
    {"TrainerOptions::", "the Trainer's "},
    {"expected one: Parameter::data()", "expected one: to_host()"},
    {"skip_broken leaves such rows out", "leave such rows out of the file"},
    {" (`unseen` can permit it)", ""},
    {" (`unseen` can count it as missing)", ""},
    {"; skip_broken leaves such files out", ""},
};

std::string in_python(std::string message) {
  for (const auto& [theirs, ours] : kWords) {
    if (const auto at = message.find(theirs); at != std::string::npos) message.replace(at, theirs.size(), ours);
  }
  return message;
}

template <typename E>
void throw_in_python(py::handle type, const E& error) {
  PyErr_SetString(type.ptr(), in_python(error.what()).c_str());
}

// Marks the current error: it names its layer.
void mark_layer() {
  py::error_scope set;
  PyErr_NormalizeException(&set.type, &set.value, &set.trace);
  py::setattr(set.value, "_names_layer", py::bool_(true));
}

// Never released, because the library may throw while the interpreter shuts down.
struct ErrorTypes {
  PyObject *error, *task, *cancelled, *lost, *audit;
};
ErrorTypes types{};

void translate(std::exception_ptr thrown) {
  if (!thrown) return;
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const CommError& e) {
    throw_in_python(types.lost, e);
  } catch (const CancelledError& e) {
    throw_in_python(types.cancelled, e);
  } catch (const TaskError& e) {
    throw_in_python(types.task, e);
  } catch (const AuditFailure& e) {
    throw_in_python(types.audit, e);
  } catch (const LayerError& e) {
    throw_in_python(types.error, e);
    mark_layer();
  } catch (const Error& e) {
    throw_in_python(types.error, e);
  }
}

}  // namespace

void name_layer(const py::error_already_set& error, const Module& module) {
  const py::object& value = error.value();
  if (!py::type::of(value).is(py::handle(types.error)) || py::hasattr(value, "_names_layer")) return;
  const std::string path = path_of(module);
  if (path.empty()) return;
  value.attr("args") = py::make_tuple(path + ": " + std::string(py::str(value)));
  value.attr("_names_layer") = true;
}

void add_errors(py::module_& m) {
  const auto make = [&](const char* name, PyObject* base, const char* text) {
    PyObject* const type = PyErr_NewExceptionWithDoc(("lockstep." + std::string(name)).c_str(), text, base, nullptr);
    if (type == nullptr) throw py::error_already_set();
    m.attr(name) = py::handle(type);
    return type;
  };
  types.error =
      make("Error", PyExc_RuntimeError, "What the library reports: the operation, what was found, what was expected.");
  types.task = make("TaskError", types.error, "A task on a device has failed.");
  types.cancelled = make("CancelledError", types.task, "A task did not run, because one before it failed.");
  types.lost = make("RankLost", types.error, "Another rank has ended, or does not answer.");
  types.audit = make("AuditFailure", types.error, "A run is not what its receipt says.");
  py::register_exception_translator(&translate);
}

}  // namespace lockstep::python
