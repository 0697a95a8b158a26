// Internal: matrix products.
#pragma once

#include <optional>

#include "lockstep/backend/matmul.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

struct MatmulOutput {
  MatmulOptions options{};
  // The type of the result; a's without it.
  std::optional<DType> dtype{};
  // Memory for the result, plain; undefined: new.
  Array into{};
};

// op(a) op(b) + bias (may be undefined): [m, k] x [k, n] + [n] -> [m, n]. Leading axes are batches of matrices, which
// broadcast as in NumPy. A bias or `into` requires a b with two axes.
Array matmul(const Array& a, const Array& b, const Array& bias = {}, const MatmulOutput& output = {});

}  // namespace lockstep::ops
