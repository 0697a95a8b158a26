// Functions of the library that take an Optimizer also take an optimizer of lockstep.optim, whose `engine` is one.
#pragma once

#include <pybind11/pybind11.h>

#include "lockstep/optim/optimizer.h"

namespace pybind11::detail {

template <>
struct type_caster<lockstep::Optimizer> : type_caster_base<lockstep::Optimizer> {
  bool load(handle source, bool convert) {
    if (type_caster_base::load(source, convert)) return true;
    if (!hasattr(source, "engine")) return false;
    engine_ = source.attr("engine");
    return type_caster_base::load(engine_, convert);
  }

 private:
  object engine_;
};

}  // namespace pybind11::detail
