// Training that begins with the weights of another run: a new last layer, frozen parts, and learning rates of their
// own.
#pragma once

#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::app {

// The path of the last Linear, which makes the outputs: "fc".
std::string head_of(Module& net);

// Loads all weights but those of the head, which has another number of outputs: it keeps its initial values. Returns
// what a notice says, or "" if all weights were loaded. Any other difference is an error, as for load_weights().
std::string load_with_new_head(const std::string& path, Module& net);

// Freezes parameters by name: those below "backbone", which is all but the head, or below a path such as "layer1".
// Parts that have nothing left to learn stay in evaluation mode. Throws UsageError for a name that fits no parameter.
void freeze_parts(Module& net, const std::vector<std::string>& names);

// All parameters as one group, or the head's with a rate of their own.
ParameterGroups groups_with_head(Module& net, double head_lr);

}  // namespace lockstep::app
