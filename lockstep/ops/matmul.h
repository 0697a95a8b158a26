// Internal: matrix products.
#pragma once

#include <optional>

#include "lockstep/backend/matmul.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

struct MatmulOutput {
  MatmulOptions options{};
  // The type of the result; by default, that of a.
  std::optional<DType> dtype{};
  // Plain memory for the result; if undefined, it is allocated.
  Array into{};
};

// op(a) op(b) + bias (may be undefined): [m, k] x [k, n] + [n] -> [m, n]. Leading axes are batches of matrices, which
// broadcast as in NumPy. A bias or `into` requires a b with two axes.
Array matmul(const Array& a, const Array& b, const Array& bias = {}, const MatmulOutput& output = {});

}  // namespace lockstep::ops
