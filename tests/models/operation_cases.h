// Operations that are compared with PyTorch's: the cases of tests/parity/operations_reference.py, by name.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/autograd/functions.h"

namespace lockstep::testing {

using In = std::vector<Tensor>;
using Operation = std::function<Tensor(const In&)>;
using Operations = std::map<std::string, Operation>;

// Numbers below 3, as in the script.
Tensor ids(const Tensor& like, const Shape& shape);

// Reductions, comparisons, indices, windows, attention, and RMS norm: cases that came later.
Operations more_operations();
// Norms, products, padding, sorting, logical functions, pooling of sequences. Inputs of some have equal elements.
Operations later_operations();
// Numbers, places, and letters: function_cases.cc.
Operations function_operations();
// Inputs with equal elements.
Operations operations_with_ties();

}  // namespace lockstep::testing
