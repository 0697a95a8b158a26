// Binds the classes of modules: their constructors, and what C++ needs to call a class of Python.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bindings.h"
#include "held.h"
#include "parameter.h"

namespace lockstep::python {

template <typename M, typename Base = Module>
using ModuleClass = py::class_<M, Base, std::shared_ptr<M>>;

// Returns the object of Python for a module below `parent`. The module may be in the parent's memory.
py::object module_object(const ModuleTree::Child& child, const std::shared_ptr<Module>& parent);
// Returns a pointer that also keeps the model's object of Python alive, because its forward() may be written there. For
// objects of C++ that keep a model.
std::shared_ptr<Module> held_module(const py::object& module);

// Ends every constructor: tells the library the name and the forward() of a class of Python; sets the arguments as
// attributes, as PyTorch's layers do; applies device and dtype.
using Arguments = std::vector<std::pair<const char*, py::object>>;
void finish_module(Module& module, py::handle self, const Arguments& arguments, const py::object& device,
                   const py::object& dtype);

template <typename T>
py::object object_of(const T& argument) {
  if constexpr (std::is_base_of_v<py::handle, T>) {
    return argument;
  } else {
    return py::cast(argument);
  }
}

// def_constructor(c, [](int a, bool b) { return Options{...}; }, "a"_a, "b"_a = true) defines __init__(a, b=True,
// device=None, dtype=None). The function must return options or an owning pointer.
template <typename Class, typename Make, typename R, typename F, typename... Args, typename... Names>
void def_constructor_as(Class& c, Make make, R (F::*)(Args...) const, const Names&... names) {
  using M = typename Class::type;
  c.def(
      "__init__",
      [make, keys = std::array<const char*, sizeof...(Args)>{names.name...}](
          py::detail::value_and_holder& place, Args... args, const py::object& device, const py::object& dtype) {
        Arguments arguments;
        const Keeping keeping;
        std::size_t i = 0;
        (arguments.emplace_back(keys[i++], object_of(args)), ...);
        std::unique_ptr<M> made;
        if constexpr (requires { M(make(std::move(args)...)); }) {
          made = std::make_unique<M>(make(std::move(args)...));
        } else {
          made = make(std::move(args)...);
        }
        Module& module = *made;
        place.value_ptr() = made.release();
        place.type->init_instance(place.inst, nullptr);
        keeping.by(reinterpret_cast<PyObject*>(place.inst));
        finish_module(module, reinterpret_cast<PyObject*>(place.inst), arguments, device, dtype);
      },
      py::detail::is_new_style_constructor(), names..., "device"_a = py::none(), "dtype"_a = py::none());
}
template <typename Class, typename Make, typename... Names>
void def_constructor(Class& c, Make make, const Names&... names) {
  def_constructor_as(c, make, &Make::operator(), names...);
}

}  // namespace lockstep::python
