// Adds the bias of convolutions and matrix products where the libraries do not.
#pragma once

#include "lockstep/backend/cuda/cuda_context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// y += bias, rounded to y's type. y is [N, C, H, W], plain or channels-last, or [N, C]; bias is [C], f32 (f64 with
// f64).
void add_bias(CudaContext& context, const View& y, const View& bias);

}  // namespace lockstep
