// Internal: an error in a layer's computation, whose message begins with the layer's path in its model:
// `3: linear: input has 144 features, weight expects 100`.
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace lockstep {

struct LayerError : Error {
  using Error::Error;
};

// Call it in a handler. Rethrows an Error of the module's forward(), as a LayerError if the module is part of a model.
// Rethrows the LayerError of a layer below unchanged.
[[noreturn]] void rethrow_in(const Module& module);
// "layers.3"; empty for a module without a parent.
std::string path_of(const Module& module);

}  // namespace lockstep
