// Training that begins with the weights of another run: with a new last layer, frozen parts, and separate learning
// rates.
#pragma once

#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::app {

// Returns the path of the last Linear, which computes the outputs: "fc".
std::string head_of(Module& net);

// Loads all weights except those of the head if its number of outputs differs: it then keeps its initial values.
// Returns the text of a notice, or "" if all weights were loaded. Other differences are errors, as for load_weights().
std::string load_with_new_head(const std::string& path, Module& net);

// Freezes parameters by name: "backbone" is all but the head, and a path such as "layer1" all below it. Modules whose
// parameters are all frozen go into evaluation mode. Throws UsageError for a name that fits no parameter.
void freeze_parts(Module& net, const std::vector<std::string>& names);

// Returns the parameters as two groups: all but the head's, and the head's with the rate `head_lr`.
ParameterGroups groups_with_head(Module& net, double head_lr);

}  // namespace lockstep::app
