#include "callbacks.h"

namespace lockstep::python {

std::string short_repr(py::handle object) {
  constexpr std::size_t kLength = 80;
  std::string text = py::repr(object);
  if (text.size() > kLength) text = text.substr(0, kLength) + "...";
  return text;
}

void fail_returned(const std::string& name, py::handle result, const char* expected) {
  throw py::type_error(fmt::format("{}: returned {}, expected {}", name, short_repr(result), expected));
}

std::function<Tensor(const Tensor& gradient)> gradient_hook(const py::function& hook) {
  return [call = Held(hook)](const Tensor& gradient) {
    const WithLock lock;
    const py::object result = call.get()(gradient);
    return result.is_none() ? Tensor() : returned_as<Tensor>("hook", result, "a tensor or None");
  };
}

}  // namespace lockstep::python
