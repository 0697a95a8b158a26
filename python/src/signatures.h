// What the functions and classes of the package say of themselves, once all of them are bound: signatures that
// inspect.signature() reads, the comments of the public headers as docstrings, and TypeErrors in Python's words.
//
//   nn.Conv2d(1, 2, 3, pading=1)
//   TypeError: Conv2d() got an unexpected keyword argument 'pading'. Did you mean 'padding'?
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::python {

struct Argument {
  std::string name;  // "*" and "/" as well; with its stars in *args and **kwargs
  std::string type;
  std::optional<std::string> value;  // the default
};

// The arguments of `sum(input: Tensor, dim: int = 0) -> Tensor`, as pybind11 writes a signature.
std::vector<Argument> arguments_of(std::string_view signature);

// Of all functions and classes of a module and the modules in it.
void describe_functions(pybind11::handle module);

// The comment of a public header about a class or function; empty if there is none. Generated: make_documentation.py.
std::string_view documentation(std::string_view name);

}  // namespace lockstep::python
