// Internal: an error in a layer's computation, whose message begins with the layer's path in its model:
// `3: linear: input has 144 features, weight expects 100`.
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace lockstep {

struct LayerError : Error {
  using Error::Error;
};

// In a handler: throws an Error of the module's forward() again, as a LayerError if the module is part of a model.
// Throws that of a layer below it as it is.
[[noreturn]] void rethrow_in(const Module& module);
// "layers.3"; empty for a module without a parent.
std::string path_of(const Module& module);

}  // namespace lockstep
