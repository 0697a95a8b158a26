// Internal: a state that is made ready before it replaces a model's values.
#pragma once

#include <vector>

#include "lockstep/nn/parameter_change.h"
#include "lockstep/nn/state_dict.h"

namespace lockstep {

// Returns the changes that load the state, with new memory for all values. Strict, as load_state_dict() is. Until they
// are committed, the model is as before.
std::vector<ParameterChange> changes_to(Module& module, const StateDict& state);

}  // namespace lockstep
