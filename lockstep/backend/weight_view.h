// Internal: weights as kernels get them.
#pragma once

#include "lockstep/tensor/view.h"

namespace lockstep {

// Weights in the order in which a model stores them and, if `prepared` is present, also in the order that kernels read.
struct WeightView : View {
  // NOLINTNEXTLINE(google-explicit-constructor)
  WeightView(const View& weights, const View& in_kernel_order = {}) : View(weights), prepared(in_kernel_order) {}

  View prepared;  // the result of PrepareConv or PrepareMatmul; may be absent
};

}  // namespace lockstep
