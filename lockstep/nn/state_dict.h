// The state of a model as named host tensors: all parameters, then all buffers, under PyTorch's names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

using StateDict = std::vector<std::pair<std::string, Tensor>>;

// Waits for the values. Throws for parameters whose shape no forward pass has settled yet.
StateDict state_dict(const Module& module);

// Overwrites all replicas. Strict: a name that is missing or not known, or a shape or type that differs, is an error
// that names it, and nothing is changed. The model has to be initialized; unknown shapes are settled.
void load_state_dict(Module& module, const StateDict& state);

}  // namespace lockstep
