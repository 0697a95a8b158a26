// Tensors for tests, and their elements.
#pragma once

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor.h"
#include "tests/tensors.h"

namespace lockstep::testing {

inline Tensor as_leaf(Tensor t) { return t.set_requires_grad(true); }

// The elements of a tensor in any placement: this process's samples.
inline std::vector<double> values(const Tensor& t) {
  return values(t->kind == Kind::cut ? join_parts(t, t.device()) : t->array());
}

}  // namespace lockstep::testing
