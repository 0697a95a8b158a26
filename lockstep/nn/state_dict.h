// The weights and buffers of a model as named tensors: to save, load, copy, or compare them.
//
//   load_state_dict(copy, state_dict(net));
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// The state of a model as named host tensors under PyTorch's names: all parameters, then all buffers.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

// Returns a model's state. Waits for the values. Throws if the shape of a parameter is not known yet.
StateDict state_dict(const Module& module);

// Overwrites all replicas of an initialized model, and settles unknown shapes. Strict: a missing or unknown name, or a
// different shape or type, is an error that names it and changes nothing. As in PyTorch, floating values are cast to
// the type of the parameter.
void load_state_dict(Module& module, const StateDict& state);
// Throws where load_state_dict() would.
void check_state_dict(const Module& module, const StateDict& state);

// Entries that were not loaded, as text: "fc.weight", or "fc.weight [10, 512], expected [5, 512]".
struct UnmatchedEntries {
  std::vector<std::string> missing;     // only in the model, which keeps its values
  std::vector<std::string> unexpected;  // only in the state
  std::vector<std::string> different;   // in both, with another shape or type; the model keeps its values
};

// For fine-tuning: loads every entry whose name and shape match and whose type matches or can be cast, and returns the
// others. Throws if none matches.
UnmatchedEntries load_matching_state(Module& module, const StateDict& state);

}  // namespace lockstep
