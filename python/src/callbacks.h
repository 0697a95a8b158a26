// Functions of the program that the library calls, from any thread. If one returns a wrong type, a TypeError names the
// function.
//
//   options.loss = function_of<Tensor(const Tensor&, const Tensor&)>("loss", object);  // empty for None
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "held.h"

namespace lockstep::python {

// Returns the beginning of repr(object), for a message.
std::string short_repr(py::handle object);

inline constexpr const char* words_for(const Tensor*) { return "a tensor"; }
inline constexpr const char* words_for(const std::vector<Tensor>*) { return "a sequence of tensors"; }
inline constexpr const char* words_for(const double*) { return "a number"; }

[[noreturn]] void fail_returned(const std::string& name, py::handle result, const char* expected);

// Returns the result of the function `name` as a T. Call it with the lock.
template <typename T>
T returned_as(const std::string& name, py::handle result, const char* expected = words_for(static_cast<T*>(nullptr))) {
  try {
    return result.cast<T>();
  } catch (const py::cast_error&) {
    fail_returned(name, result, expected);
  } catch (const py::reference_cast_error&) {  // T does not take None
    fail_returned(name, result, expected);
  }
}

template <typename Signature>
struct FunctionOf;
template <typename R, typename... Args>
struct FunctionOf<R(Args...)> {
  std::string name;
  Held function;
  R operator()(Args... args) const {
    const WithLock lock;
    const py::object result = function.get()(args...);
    if constexpr (std::is_same_v<R, py::object>) {
      return result;
    } else if constexpr (!std::is_void_v<R>) {
      return returned_as<R>(name, result);
    }
  }
};

template <typename Signature>
std::function<Signature> function_of(std::string name, const py::object& object) {
  if (object.is_none()) return {};
  if (PyCallable_Check(object.ptr()) == 0)
    throw py::type_error(fmt::format("{}: {}, expected a function", name, short_repr(object)));
  return FunctionOf<Signature>{std::move(name), Held(object)};
}

// A registered hook, until it is removed.
struct RemovableHandle {
  std::function<void()> remove;
  void remove_hook() {
    if (const auto once = std::exchange(remove, nullptr)) once();
  }
};

// Wraps a hook of a gradient, to call from any thread. None becomes an undefined tensor.
std::function<Tensor(const Tensor& gradient)> gradient_hook(const py::function& hook);

}  // namespace lockstep::python
