// Declarations for the files of layers.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "extents.h"
#include "module_class.h"
#include "words.h"

namespace lockstep::python {

void add_containers(py::module_& m);  // Sequential
void add_activations(py::module_& m);
void add_recurrent_layers(py::module_& m);
void add_models(py::module_& core);

// Adds a layer that one constructor makes.
template <typename M, typename Base = Module, typename Make, typename... Names>
ModuleClass<M, Base> add_layer(py::module_& m, const char* name, Make make, const Names&... names) {
  ModuleClass<M, Base> c(m, name);
  def_constructor(c, make, names...);
  return c;
}

}  // namespace lockstep::python
